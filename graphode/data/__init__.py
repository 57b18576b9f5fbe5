"""Data sets, as graphs and tensors; no model is known here."""

from graphode.data.catalogue import SOURCES as SOURCES
from graphode.data.catalogue import DataFile as DataFile
from graphode.data.catalogue import DataSource as DataSource
from graphode.data.cora_linqs import cora_linqs as cora_linqs
from graphode.data.covid import GraphStream as GraphStream
from graphode.data.covid import england_covid as england_covid
from graphode.data.distance_tables import STGCN_BANDWIDTH as STGCN_BANDWIDTH
from graphode.data.distance_tables import STGCN_THRESHOLD as STGCN_THRESHOLD
from graphode.data.distance_tables import read_distances as read_distances
from graphode.data.distance_tables import shortest_paths as shortest_paths
from graphode.data.distance_tables import traffic_graph as traffic_graph
from graphode.data.karate import karate_club as karate_club
from graphode.data.karate import karate_club_factions as karate_club_factions
from graphode.data.node_data import NodeData as NodeData
from graphode.data.node_data import row_normalized as row_normalized
from graphode.data.node_sets import NODE_SETS as NODE_SETS
from graphode.data.node_sets import load_node_data as load_node_data
from graphode.data.npz_graphs import shchur as shchur
from graphode.data.npz_graphs import texas as texas
from graphode.data.particle_forces import CoincidentParticlesError as CoincidentParticlesError
from graphode.data.particle_system import Particles as Particles
from graphode.data.particles import simulate as simulate
from graphode.data.planetoid import planetoid as planetoid
from graphode.data.speed_tables import read_speeds as read_speeds
from graphode.data.splits import Split as Split
from graphode.data.splits import random_split as random_split
from graphode.data.splits import random_split_by_fractions as random_split_by_fractions
from graphode.data.store import DamagedFileError as DamagedFileError
from graphode.data.store import MissingFileError as MissingFileError
from graphode.data.traffic import TRAFFIC_SETS as TRAFFIC_SETS
from graphode.data.traffic import load_traffic as load_traffic
from graphode.data.traffic import pems08 as pems08
from graphode.data.traffic import pemsd7m as pemsd7m
from graphode.data.traffic_series import TimeSplit as TimeSplit
from graphode.data.traffic_series import TrafficSeries as TrafficSeries
from graphode.data.traffic_series import split_by_days as split_by_days
from graphode.data.traffic_series import split_by_fractions as split_by_fractions
from graphode.data.traffic_simulation import simulated_traffic as simulated_traffic
from graphode.data.traffic_windows import Standardizer as Standardizer
from graphode.data.traffic_windows import TrafficBatch as TrafficBatch
from graphode.data.traffic_windows import TrafficWindows as TrafficWindows
from graphode.data.traffic_windows import keep_mask as keep_mask
from graphode.data.traffic_windows import traffic_windows as traffic_windows
from graphode.data.trajectories import Trajectories as Trajectories

__all__ = [
    "NODE_SETS",
    "SOURCES",
    "STGCN_BANDWIDTH",
    "STGCN_THRESHOLD",
    "TRAFFIC_SETS",
    "CoincidentParticlesError",
    "DamagedFileError",
    "DataFile",
    "DataSource",
    "GraphStream",
    "MissingFileError",
    "NodeData",
    "Particles",
    "Split",
    "Standardizer",
    "TimeSplit",
    "TrafficBatch",
    "TrafficSeries",
    "TrafficWindows",
    "Trajectories",
    "cora_linqs",
    "england_covid",
    "karate_club",
    "karate_club_factions",
    "keep_mask",
    "load_node_data",
    "load_traffic",
    "pems08",
    "pemsd7m",
    "planetoid",
    "random_split",
    "random_split_by_fractions",
    "read_distances",
    "read_speeds",
    "row_normalized",
    "shchur",
    "shortest_paths",
    "simulate",
    "simulated_traffic",
    "split_by_days",
    "split_by_fractions",
    "texas",
    "traffic_graph",
    "traffic_windows",
]
