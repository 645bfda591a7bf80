"""Layer: machine and simulator. Hardware routes: shortest paths, equal ones shared evenly."""

import dataclasses
from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ficco_sim.collective import run_collective
from ficco_sim.costs import CostModel
from ficco_sim.errors import MachineError
from ficco_sim.machine import Link, Machine, load_machine
from ficco_sim.routing import Routes


def routed(num_gpus: int, edges: list[tuple[int, int]], switches: int = 0, **kwargs) -> Machine:
    """Links of 10 GB/s and 1 us both ways; numbers from ``num_gpus`` up are switches."""
    pairs = sorted({(a, b) for a, b in edges} | {(b, a) for a, b in edges})
    return dataclasses.replace(
        load_machine("mi300x_8"),
        name="routed",
        num_gpus=num_gpus,
        switches=tuple(f"s{i}" for i in range(switches)),
        hardware_routing=True,
        links=tuple(
            Link(src=a, dst=b, bandwidth_bytes_per_s=10e9, usable_bytes_per_s=10e9, latency_s=1e-6)
            for a, b in pairs
        ),
        **kwargs,
    )


SQUARE = [(0, 1), (1, 3), (0, 2), (2, 3)]


def test_two_equal_paths_carry_half_each_and_double_the_rate():
    machine = routed(4, SQUARE)
    route = Routes(machine)(0, 3)
    assert sorted(route.shares) == [0.5] * 4
    assert route.latency_s == pytest.approx(2e-6)


def test_a_longer_path_carries_nothing():
    machine = routed(5, [*SQUARE, (0, 4), (4, 1)])
    used = {(machine.links[i].src, machine.links[i].dst) for i in Routes(machine)(0, 3).links}
    assert used == {(0, 1), (1, 3), (0, 2), (2, 3)}


def test_shares_count_paths_not_neighbours():
    # 0 -> 1 leads to two ways on, 0 -> 2 to one: three paths in all
    machine = routed(6, [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (3, 5), (4, 5)])
    route = Routes(machine)(0, 5)
    share = {
        (machine.links[i].src, machine.links[i].dst): s
        for i, s in zip(route.links, route.shares, strict=True)
    }
    assert share[0, 1] == pytest.approx(2 / 3)
    assert share[0, 2] == pytest.approx(1 / 3)
    assert share[4, 5] == pytest.approx(2 / 3)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n=st.integers(3, 10))
def test_shares_are_conserved_and_agree_with_all_shortest_paths(data, n):
    graph = nx.gnm_random_graph(n, data.draw(st.integers(n, 3 * n)), seed=data.draw(st.integers(0, 99)))
    if not nx.is_connected(graph):
        return
    machine = routed(n, list(graph.edges))
    src, dst = 0, n - 1
    route = Routes(machine)(src, dst)
    paths = list(nx.all_shortest_paths(graph, src, dst))
    wanted = Counter((a, b) for path in paths for a, b in pairwise(path))
    got = {
        (machine.links[i].src, machine.links[i].dst): s
        for i, s in zip(route.links, route.shares, strict=True)
    }
    assert set(got) == set(wanted)
    for edge, count in wanted.items():
        assert got[edge] == pytest.approx(count / len(paths))
    assert route.latency_s == pytest.approx(1e-6 * (len(paths[0]) - 1))


def test_bytes_follow_the_shares():
    machine = routed(4, SQUARE)
    result, _, _ = run_collective("all_gather", 4 * 2**20, machine, costs=CostModel(machine, "ideal"))
    # every shard crosses to the two neighbours whole and to the far corner in halves
    assert {link.nbytes for link in result.links} == {2 * 2**20}
    assert not result.relayed


def test_cut_through_adds_latency_per_hop_but_no_bytes_twice():
    chain = routed(4, [(0, 1), (1, 2), (2, 3)])
    route = Routes(chain)(0, 3)
    assert route.latency_s == pytest.approx(3e-6)
    assert route.shares == (1.0, 1.0, 1.0)


def test_switches_pass_on_where_gpus_do_not():
    tree = routed(4, [(0, 4), (1, 4), (2, 5), (3, 5), (4, 6), (5, 6), (4, 7), (5, 7)], switches=4)
    plain = dataclasses.replace(tree, hardware_routing=False)
    route = Routes(plain)(0, 3)
    # up to either of two spine switches
    assert sorted(route.shares) == [0.5] * 4 + [1.0] * 2
    line = dataclasses.replace(routed(3, [(0, 1), (1, 2)]), hardware_routing=False)
    with pytest.raises(MachineError, match="no link joins gpu 0 to gpu 2"):
        Routes(line)(0, 2)


def test_a_direct_link_is_taken_before_any_switch():
    machine = routed(2, [(0, 1), (0, 2), (1, 2)], switches=1)
    assert len(Routes(machine)(0, 1).links) == 1
