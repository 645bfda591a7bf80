"""Layer: harness without a gpu. The text of --map round-trips, and what is wrong in it is named."""

import pytest
from hw_strategies import placements
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from ficco_sim.errors import ScenarioError
from hw_validate.placement import HOST, MAX_DEVICES, Placement, parse_placement

placed = placements(devices=(0, 1, 2, MAX_DEVICES - 1))


@examples(300)
@given(placement=placed)
def test_text_and_placement_round_trip(placement):
    text = placement.describe()
    assert parse_placement(text, placement.num_gpus) == placement
    assert parse_placement(text.replace(",", " , "), placement.num_gpus) == placement
    backwards = ",".join(reversed(text.split(",")))
    assert parse_placement(backwards, placement.num_gpus) == placement


@examples(300)
@given(placement=placed)
def test_labels_say_all_that_is_not_what_it_stands_for(placement):
    owners = [
        [g for g, at in enumerate(placement.places) if at == device] for device in placement.devices
    ]
    alone = all(len(gpus) == 1 for gpus in owners)
    everyone = len(placement.computing) == placement.num_gpus
    assert placement.is_emulated == (not (alone and everyone))
    assert all(label.startswith(("emulated: gpu", "emulated: a link")) for label in placement.labels)
    linked = sum("a link of its own to each of" in label for label in placement.labels)
    assert linked == len({placement.places[gpu] for gpu in placement.linked})
    assert sum(map(placement.num_links, set(placement.places))) == len(placement.linked)
    assert len(set(placement.labels)) == len(placement.labels)
    assert HOST not in placement.devices
    assert list(placement.devices) == sorted({place for place in placement.places if place >= 0})
    # every gpu that only holds data is named, by its number or in a range
    named = set()
    for label in placement.labels:
        if " only hold" in label:
            gpus = label.removeprefix("emulated: gpu").lstrip("s").split(" only ")[0]
            first, _, last = gpus.partition(" to ")
            numbers = [int(x) for x in first.split(",")]
            named.update(range(numbers[0], int(last) + 1) if last else numbers)
    assert named == set(range(placement.num_gpus)) - placement.computing


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (None, ()),
        ("0=dev3,1=dev2,2=dev1,3=dev0", ()),
        ("0-3=dev0", ("emulated: gpus 0 to 3 compute on device 0 together",)),
        ("0=dev0,1-3=host", ("emulated: gpus 1 to 3 only hold data, in pinned host memory",)),
        (
            "0=dev0,1-3=dev0:shard",
            ("emulated: gpus 1 to 3 only hold data, in the memory of device 0",),
        ),
        (
            "0=dev0,1-3=host:link",
            (
                "emulated: gpus 1 to 3 only hold data, in pinned host memory",
                "emulated: a link of its own to each of gpus 1 to 3, all by one that moves at a time "
                "what they would carry at the same time",
            ),
        ),
        (
            "0=dev1,2=dev1,1=host,3=dev0:shard",
            (
                "emulated: gpu 3 only holds data, in the memory of device 0",
                "emulated: gpus 0, 2 compute on device 1 together",
                "emulated: gpu 1 only holds data, in pinned host memory",
            ),
        ),
    ],
)
def test_labels(text, labels):
    assert parse_placement(text, 4).labels == labels


def test_without_text_every_gpu_has_its_own_device():
    placement = parse_placement(None, 3)
    assert placement == Placement.own_devices(3)
    assert placement.describe() == "0=dev0,1=dev1,2=dev2"
    assert placement.devices == (0, 1, 2)
    assert not placement.is_emulated


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["''", "GPUS=PLACE"]),
        ("0=dev0,", ["''", "GPUS=PLACE"]),
        ("0=gpu0,1-3=host", ["'0=gpu0'", "GPUS=PLACE, comma-separated", "0=dev0,1-7=host"]),
        ("0=dev0,1-3=host:shard", ["'1-3=host:shard'", "GPUS=PLACE"]),
        ("0=dev-1", ["'0=dev-1'", "GPUS=PLACE"]),
        ("x" * 99, [f"'{'x' * 40}'", "GPUS=PLACE"]),
        ("0-4=dev0", ["'0-4=dev0'", "gpus must be from 0 to 3"]),
        ("3-0=dev0", ["'3-0=dev0'", "from 0 to 3, in order"]),
        ("0-3=dev64", ["'0-3=dev64'", "devices are 0 to 63"]),
        ("0-2=dev0,2-3=dev1", ["gpu 2 is placed twice"]),
        ("0=dev0", ["no place for gpus 1 to 3 of 4"]),
        ("0=dev0,1=dev1,3=host", ["no place for gpu 2 of 4"]),
        ("0=dev0,2=dev1", ["no place for gpus 1, 3 of 4"]),
        ("0-3=host", ["no gpu computes", "without ':shard'"]),
        ("0-3=dev0:shard", ["no gpu computes", "without ':shard'"]),
        ("0-3=dev0:link", ["no gpu computes"]),
        ("0=dev0:link:shard,1-3=dev1", ["'0=dev0:link:shard'", "GPUS=PLACE"]),
        ("0=dev0,1=dev1,2-3=host:link", ["with ':link' one gpu computes", "2 do"]),
        ("\u0663=dev0", ["'\u0663=dev0'", "GPUS=PLACE"]),  # a digit, but of another script
        ("9" * 5000 + "=dev0", ["GPUS=PLACE"]),
        ("0-3=dev" + "9" * 5000, ["GPUS=PLACE"]),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(text, parts):
    with pytest.raises(ScenarioError) as caught:
        parse_placement(text, 4)
    message = str(caught.value)
    assert message.startswith("--map: ")
    assert len(message) < 250
    assert [part for part in parts if part not in message] == []


@examples(300)
@given(text=st.text(alphabet="0123-=dev,:shardhostlink ", max_size=25), num_gpus=st.integers(1, 4))
def test_any_text_is_read_or_refused(text, num_gpus):
    try:
        placement = parse_placement(text, num_gpus)
    except ScenarioError as error:
        assert str(error).startswith("--map: ")  # noqa: PT017 - either outcome is right
    else:
        assert parse_placement(placement.describe(), num_gpus) == placement


def test_a_gpu_cannot_compute_in_host_memory():
    with pytest.raises(ScenarioError, match="--map: gpu 1 cannot compute in host memory"):
        Placement(places=(0, HOST), computing=frozenset({0, 1}))
