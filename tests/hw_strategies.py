"""Shared strategies of the tests of `hw_validate`: placements, and steps with waits between lanes."""

from hypothesis import strategies as st

from hw_validate.placement import HOST, Placement
from hw_validate.program import Lane, Step


@st.composite
def placements(draw, num_gpus=None, devices=(0, 1, 2)):
    """Some gpus compute, alone or together on a device; the others hold data anywhere.

    Where one computes, others may have links of their own to it.
    """
    count = draw(st.integers(1, 12)) if num_gpus is None else num_gpus
    places = [draw(st.sampled_from([HOST, *devices])) for _ in range(count)]
    working = draw(st.integers(0, count - 1))
    places[working] = max(places[working], 0)
    willing = [gpu for gpu, place in enumerate(places) if place != HOST]
    computing = {working, *draw(st.sets(st.sampled_from(willing)))}
    others = sorted(set(range(count)) - computing)
    linked = draw(st.sets(st.sampled_from(others))) if others and len(computing) == 1 else ()
    return Placement(places=tuple(places), computing=frozenset(computing), linked=frozenset(linked))


def lane(gpu=0, name="dma0", device=None):
    return Lane(gpu=gpu, device=gpu if device is None else device, name=name)


def step(name, waits=(), on=None, launch=lambda _: None):
    return Step(id=name, lane=on or lane(), launch=launch, waits=tuple(waits))


@st.composite
def programs(draw, num_devices=3):
    """Steps that can be ordered, given lane by lane, so that some wait for later ones."""
    count = draw(st.integers(1, 15))
    separate = draw(st.booleans())  # no gpu waits for another
    made = []
    for i in range(count):
        gpu = draw(st.integers(0, 2))
        on = lane(gpu, draw(st.sampled_from(["dma0", "compute0"])), gpu % num_devices)
        earlier = [s.id for s in made if not separate or s.lane.gpu == gpu]
        waits = draw(st.sets(st.sampled_from(earlier), max_size=3)) if earlier else ()
        made.append(step(f"s{i}", sorted(waits), on))
    lanes = list(dict.fromkeys(s.lane for s in made))
    return [s for on in draw(st.permutations(lanes)) for s in made if s.lane == on]
