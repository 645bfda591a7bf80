"""Max-min fair rates of flows on shared resources. Layer: one pure function, no simulator."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ficco_sim.sim.fair_share import max_min_rates

INF = math.inf
CLOSE = 1e-9


@dataclass(frozen=True)
class Problem:
    routes: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[float, ...], ...]
    caps: tuple[float, ...]
    capacity: tuple[float, ...]

    def rates(self) -> list[float]:
        return max_min_rates(self.routes, self.shares, self.caps, self.capacity)

    def loads(self, rates: list[float]) -> list[float]:
        loads = [0.0] * len(self.capacity)
        for route, shares, rate in zip(self.routes, self.shares, rates, strict=True):
            for resource, share in zip(route, shares, strict=True):
                loads[resource] += rate * share
        return loads

    def users(self, resource: int) -> list[int]:
        return [flow for flow, route in enumerate(self.routes) if resource in route]


POSITIVE = st.one_of(
    st.sampled_from([1.0, 2.0, 3.0, 10.0, 46.5e9, 394e9]), st.floats(1e-3, 1e12, allow_nan=False)
)
SHARES = st.sampled_from([1.0, 1.0, 0.5, 1 / 3, 0.25, 2 / 3])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    capacity = tuple(draw(st.lists(POSITIVE, min_size=1, max_size=6)))
    resources = st.lists(st.integers(0, len(capacity) - 1), unique=True, max_size=4)
    routes = tuple(tuple(route) for route in draw(st.lists(resources, max_size=9)))
    shares = tuple(tuple(draw(SHARES) for _ in route) for route in routes)
    # a flow that crosses nothing is held by its cap alone
    caps = tuple(draw(POSITIVE | st.just(INF)) if route else draw(POSITIVE) for route in routes)
    return Problem(routes, shares, caps, capacity)


@given(problems())
def test_no_resource_carries_more_than_its_capacity(problem: Problem) -> None:
    for load, capacity in zip(problem.loads(problem.rates()), problem.capacity, strict=True):
        assert load <= capacity * (1 + CLOSE)


@given(problems())
def test_every_flow_moves_and_none_exceeds_its_cap(problem: Problem) -> None:
    rates = problem.rates()
    assert len(rates) == len(problem.routes)
    for rate, cap in zip(rates, problem.caps, strict=True):
        assert 0 < rate <= cap


@given(problems())
def test_every_flow_has_a_bottleneck(problem: Problem) -> None:
    """This defines max-min: each flow is at its cap, or crosses a full resource as its fastest user."""
    rates = problem.rates()
    loads = problem.loads(rates)
    for flow, route in enumerate(problem.routes):
        full = [r for r in route if loads[r] >= problem.capacity[r] * (1 - CLOSE)]
        fastest_there = any(
            rates[flow] >= max(rates[other] for other in problem.users(r)) * (1 - CLOSE) for r in full
        )
        assert rates[flow] == problem.caps[flow] or fastest_there


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(problem: Problem, random) -> None:
    order = list(range(len(problem.routes)))
    random.shuffle(order)
    shuffled = Problem(
        tuple(problem.routes[i] for i in order),
        tuple(problem.shares[i] for i in order),
        tuple(problem.caps[i] for i in order),
        problem.capacity,
    )
    rates = problem.rates()
    assert shuffled.rates() == pytest.approx([rates[i] for i in order], rel=CLOSE)


@given(problems(), st.integers(-20, 20))
def test_rates_scale_with_the_unit(problem: Problem, exponent: int) -> None:
    """A power of two changes no digit, so that the answers must be equal to the last bit."""
    factor = 2.0**exponent
    scaled = Problem(
        problem.routes,
        problem.shares,
        tuple(cap * factor for cap in problem.caps),
        tuple(c * factor for c in problem.capacity),
    )
    assert scaled.rates() == [rate * factor for rate in problem.rates()]


@given(problems(), st.integers(0, 5), st.floats(1.0, 4.0))
def test_the_slowest_flow_never_loses_when_a_resource_grows(
    problem: Problem, grown: int, factor: float
) -> None:
    """Others may lose: a flow that was held elsewhere now takes more of what they share."""
    capacity = list(problem.capacity)
    capacity[grown % len(capacity)] *= factor
    before = problem.rates()
    after = Problem(problem.routes, problem.shares, problem.caps, tuple(capacity)).rates()
    assert min(after, default=0.0) >= min(before, default=0.0) * (1 - CLOSE)


def ones(routes: list[tuple[int, ...]]) -> list[tuple[float, ...]]:
    return [(1.0,) * len(route) for route in routes]


@pytest.mark.parametrize(
    ("routes", "caps", "capacity", "expected"),
    [
        pytest.param([], [], [5.0], [], id="nothing"),
        pytest.param([(0,)], [INF], [5.0], [5.0], id="alone"),
        pytest.param([(0,)], [2.0], [5.0], [2.0], id="alone-capped"),
        pytest.param([()], [2.0], [5.0], [2.0], id="no-resource"),
        pytest.param([(0,)] * 4, [INF] * 4, [8.0], [2.0] * 4, id="equal-shares"),
        pytest.param([(0,)] * 3, [1.0, INF, INF], [9.0], [1.0, 4.0, 4.0], id="cap-leaves-more"),
        pytest.param([(0,)] * 3, [1.0, 2.0, INF], [9.0], [1.0, 2.0, 6.0], id="caps-one-after-another"),
        pytest.param([(0, 1, 2), (0,), (1,), (2,)], [INF] * 4, [4.0] * 3, [2.0] * 4, id="parking-lot"),
        pytest.param([(0, 1), (0,), (1,)], [INF] * 3, [2.0, 10.0], [1.0, 1.0, 9.0], id="unequal-links"),
        # three flows into one port and one that leaves a sender of theirs for an idle port
        pytest.param(
            [(0, 9), (1, 9), (2, 9), (0, 8)],
            [INF] * 4,
            dict.fromkeys((0, 1, 2, 8, 9), 3.0),
            [1.0, 1.0, 1.0, 2.0],
            id="switch",
        ),
    ],
)
def test_known_answers(routes, caps, capacity, expected) -> None:
    assert max_min_rates(routes, ones(routes), caps, capacity) == pytest.approx(expected)


def test_a_flow_over_two_paths_loads_each_with_its_part() -> None:
    """Half of the bytes on each of two links of 3: both full at a rate of 6."""
    assert max_min_rates([(0, 1)], [(0.5, 0.5)], [INF], [3.0, 3.0]) == [6.0]


def test_fairness_is_of_rates_not_of_parts() -> None:
    """A flow with half of its bytes on a link of 3 and a flow with all of them: 2 each, 1 + 2 = 3."""
    rates = max_min_rates([(0, 1), (0,)], [(0.5, 0.5), (1.0,)], [INF, INF], [3.0, 30.0])
    assert rates == pytest.approx([2.0, 2.0])
