"""Numbers and element types in text: only plain decimal digits, bounded in length."""

import math
import re

__all__ = ["PER_SECOND", "half_step", "normal_dtype", "to_count", "to_number", "to_seconds"]

COUNT = re.compile(r"[0-9]{1,18}\Z")
NUMBER = re.compile(r"([0-9]{1,30})(?:\.([0-9]{0,30}))?(?:[eE]([+-]?[0-9]{1,3}))?\Z")
PER_SECOND = {
    **dict.fromkeys(("ns", "nsec", "nanoseconds"), 1e9),
    **dict.fromkeys(("us", "usec", "\u00b5s", "\u03bcs", "microseconds"), 1e6),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e3),
    **dict.fromkeys(("s", "sec", "seconds"), 1.0),
}
"""How many of a unit of time make a second; both Greek letters that people take for micro."""

LEAST_S, MOST_S = 1e-9, 1e6

DTYPES = {
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "f16", "float16", "half"), "fp16"),
    **dict.fromkeys(("fp32", "f32", "float32", "float"), "fp32"),
    **dict.fromkeys(("fp8", "f8", "float8", "e4m3", "e5m2", "bf8"), "fp8"),
}
NOISE = re.compile(r"^(?:torch\.|c10::)|_r$|fnuz|fn(?=$|_)")
FP8 = re.compile(r"(?:fp8|f8|bf8|float8)?_?(?:e4m3|e5m2)?_?\Z")


def to_count(text: str) -> int | None:
    """A whole number that is not negative, None if it is no such number.

    Examples
    --------
    >>> to_count("8192"), to_count("-1"), to_count("8_192")
    (8192, None, None)
    """
    return int(text) if COUNT.match(text) else None


def to_number(text: str) -> float | None:
    """A finite number that is not negative, None if it is no such number.

    Examples
    --------
    >>> to_number("1.0400e+06"), to_number("1e999"), to_number("nan")
    (1040000.0, None, None)
    """
    value = float(text) if NUMBER.match(text) else math.inf
    return value if math.isfinite(value) else None


def half_step(text: str) -> float:
    """By how much a number may differ from what it was rounded from.

    Examples
    --------
    >>> half_step("46.36"), half_step("1.2e+07")
    (0.005, 500000.0)
    """
    match = NUMBER.match(text)
    assert match, "only of what is a number"
    exponent = min(int(match.group(3) or 0), 300)
    return float(f"0.5e{exponent - len(match.group(2) or '')}")


def normal_dtype(text: str) -> str | None:
    """The word of `DTYPE_BYTES` for an element type of a library, None if it has none.

    Examples
    --------
    >>> normal_dtype("c10::BFloat16"), normal_dtype("f8_fnuz_r"), normal_dtype("torch.float8_e4m3fn")
    ('bf16', 'fp8', 'fp8')
    >>> normal_dtype("int8") is None
    True
    """
    bare = NOISE.sub("", text.strip().lower()[:40]).strip("_")
    if bare and FP8.match(bare):
        return "fp8"
    return DTYPES.get(bare)


def to_seconds(text: str, per_second: float) -> float | None:
    """A time that something on a gpu can take (1 ns to 11 days), None if it is no such time."""
    time_s = (to_number(text) or 0.0) / per_second
    return time_s if LEAST_S <= time_s <= MOST_S else None
