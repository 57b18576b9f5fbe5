"""Zachary's karate club: the smallest real graph, built in.

Zachary (1977), "An Information Flow Model for Conflict and Fission in Small Groups", Journal of
Anthropological Research 33, 452–473: 34 members, 78 friendships, and the split into two factions.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from graphode.graphs import Graph

# Each member with those friends whose number is higher; numbered from 0.
FRIENDS = {
    0: (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31),
    1: (2, 3, 7, 13, 17, 19, 21, 30),
    2: (3, 7, 8, 9, 13, 27, 28, 32),
    3: (7, 12, 13),
    4: (6, 10),
    5: (6, 10, 16),
    6: (16,),
    8: (30, 32, 33),
    9: (33,),
    13: (33,),
    14: (32, 33),
    15: (32, 33),
    18: (32, 33),
    19: (33,),
    20: (32, 33),
    22: (32, 33),
    23: (25, 27, 29, 32, 33),
    24: (25, 27, 31),
    25: (31,),
    26: (29, 33),
    27: (33,),
    28: (31, 33),
    29: (32, 33),
    30: (32, 33),
    31: (32, 33),
    32: (33,),
}
STAYED_WITH_THE_INSTRUCTOR = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21)


def karate_club() -> Graph:
    """The friendships, unweighted and in both directions: 34 nodes, 156 directed edges."""
    edges = torch.tensor([(a, b) for a, friends in FRIENDS.items() for b in friends]).t()
    return Graph(torch.cat([edges, edges.flip(0)], 1), num_nodes=34)


def karate_club_factions() -> Int[Tensor, " nodes"]:
    """Who went where when the club split: 0 with the instructor (node 0), 1 with the officers."""
    factions = torch.ones(34, dtype=torch.int64)
    factions[list(STAYED_WITH_THE_INSTRUCTOR)] = 0
    return factions
