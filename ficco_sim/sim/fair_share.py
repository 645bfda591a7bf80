"""Max-min fair rates of flows that share resources: progressive filling, as a pure function."""

from collections.abc import Mapping, Sequence

__all__ = ["max_min_rates"]


def max_min_rates(
    routes: Sequence[tuple[int, ...]],
    shares: Sequence[tuple[float, ...]],
    caps: Sequence[float],
    capacity: Mapping[int, float] | Sequence[float],
) -> list[float]:
    """Rates such that no flow can gain but at the cost of one that is not faster.

    Parameters
    ----------
    routes
        For each flow the resources that it crosses.
    shares
        For each flow the part of its rate that each of them carries, more than 0 and at most 1.
    caps
        The most each flow can use, in the unit of the rates; may be infinite if its route is not
        empty.
    capacity
        Of each resource.

    Returns
    -------
    list of float
        A rate per flow.

    Examples
    --------
    >>> routes, shares = [(0,), (0,), (0, 1)], [(1.0,), (1.0,), (1.0, 1.0)]
    >>> max_min_rates(routes, shares, [9.0, 9.0, 9.0], {0: 6.0, 1: 1.0})
    [2.5, 2.5, 1.0]
    """
    rates = [0.0] * len(routes)
    users: dict[int, list[int]] = {}
    weight: dict[int, float] = {}
    for flow, route in enumerate(routes):
        for resource, part in zip(route, shares[flow], strict=True):
            users.setdefault(resource, []).append(flow)
            weight[resource] = weight.get(resource, 0.0) + part
    left = {resource: capacity[resource] for resource in users}
    count = {resource: len(flows) for resource, flows in users.items()}
    open_flows = dict.fromkeys(range(len(routes)))
    while open_flows:
        share, tightest = min(
            ((left[r] / weight[r], r) for r in users if count[r]), default=(float("inf"), -1)
        )
        capped = [flow for flow in open_flows if caps[flow] <= share]
        if capped:
            # the smallest cap only: fixing it raises the share of the others
            least = min(caps[flow] for flow in capped)
            fixed = [flow for flow in capped if caps[flow] == least]
            rate = least
        else:
            fixed = [flow for flow in users[tightest] if flow in open_flows]
            rate = share
        for flow in fixed:
            rates[flow] = rate
            del open_flows[flow]
            for resource, part in zip(routes[flow], shares[flow], strict=True):
                left[resource] = max(left[resource] - rate * part, 0.0)
                weight[resource] -= part
                count[resource] -= 1
    return rates
