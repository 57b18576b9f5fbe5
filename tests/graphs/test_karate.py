"""The built-in karate club is the one that networkx ships."""

import networkx
import torch

from graphode.data import karate_club, karate_club_factions


def test_the_club_has_the_edges_and_factions_of_networkx():
    theirs = networkx.karate_club_graph()
    graph = karate_club()
    expected = torch.from_numpy(networkx.to_numpy_array(theirs, weight=None))
    torch.testing.assert_close(graph.to_dense(), expected)
    assert (graph.num_nodes, graph.num_edges, graph.is_symmetric) == (34, 156, True)
    went = [theirs.nodes[node]["club"] == "Officer" for node in theirs]
    assert karate_club_factions().tolist() == went
