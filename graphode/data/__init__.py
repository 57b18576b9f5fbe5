"""Data sets, as graphs and tensors; no model is known here."""

from graphode.data.karate import karate_club as karate_club
from graphode.data.karate import karate_club_factions as karate_club_factions

__all__ = ["karate_club", "karate_club_factions"]
