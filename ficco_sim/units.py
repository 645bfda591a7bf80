"""Unit constants and the formatting of quantities for people. Imports nothing from the package."""

import math

__all__ = [
    "GB",
    "GIB",
    "KIB",
    "MIB",
    "MS",
    "US",
    "format_bytes",
    "format_flops",
    "format_rate",
    "format_seconds",
    "parse_bytes",
    "parse_seconds",
    "to_ns",
]

KIB = 2**10
MIB = 2**20
GIB = 2**30
GB = 10**9
US = 1e-6
MS = 1e-3


def to_ns(seconds: float) -> int:
    """Whole nanoseconds, the nearest.

    Examples
    --------
    >>> to_ns(2.0006e-6)
    2001
    """
    return round(seconds * 1e9)


def format_seconds(seconds: float) -> str:
    """Format a duration with a unit that suits its size.

    Examples
    --------
    >>> format_seconds(0.002123)
    '2.123 ms'
    >>> format_seconds(7.5e-6)
    '7.50 us'
    """
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds == 0:
        return "0 s"
    if abs(seconds) >= 1:
        return f"{seconds:.3f} s"
    if abs(seconds) >= MS:
        return f"{seconds / MS:.3f} ms"
    return f"{seconds / US:.2f} us"


def format_bytes(num_bytes: float) -> str:
    """Format a size in binary units.

    Examples
    --------
    >>> format_bytes(64 * MIB)
    '64.0 MiB'
    """
    for name, size in (("TiB", 2**40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:.1f} {name}"
    return f"{num_bytes:.0f} B"


def format_rate(bytes_per_s: float) -> str:
    """Format a rate in GB/s, 1 GB being 10**9 bytes.

    Examples
    --------
    >>> format_rate(46.5e9)
    '46.5 GB/s'
    """
    return f"{bytes_per_s / GB:.1f} GB/s"


def format_flops(flops: float) -> str:
    """Format an amount of floating-point operations.

    Examples
    --------
    >>> format_flops(9.6e11)
    '0.96 TFLOP'
    """
    return f"{flops / 1e12:.2f} TFLOP"


BYTE_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": GB, "KIB": KIB, "MIB": MIB, "GIB": GIB}
MAX_BYTES = 2**50


def parse_bytes(text: str) -> int:
    """Read a size with a decimal (kB, MB, GB) or binary (KiB, MiB, GiB) unit, or plain bytes.

    Raises
    ------
    ValueError
        If the text is no size from 1 byte to 1 PiB, or in bits (Gb).

    Examples
    --------
    >>> parse_bytes("64MiB")
    67108864
    """
    digits = text.strip().rstrip("BKMGIbkmgi ")
    unit = text.strip()[len(digits) :].strip()
    if unit[:1].isupper() and unit.endswith("b"):
        raise ValueError(f"{text[:40]!r} is in bits; give bytes, B, 8 bits each")
    try:
        size = float(digits) * BYTE_UNITS[unit.upper()]
    except (KeyError, ValueError):
        raise ValueError(f"{text[:40]!r} must be a size such as 4096, 64MiB or 1GB") from None
    if not 1 <= size <= MAX_BYTES:
        raise ValueError(f"{text[:40]!r} must be from 1 byte to 1 PiB")
    return int(size)


PER_SECOND = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}


def parse_seconds(text: str) -> float:
    """Read a duration with the unit s, ms, us or ns.

    Raises
    ------
    ValueError
        If the text is no finite duration from 0 up.

    Examples
    --------
    >>> parse_seconds("5ms")
    0.005
    """
    digits = text.strip().rstrip("smun ")
    unit = text.strip()[len(digits) :].strip()
    try:
        seconds = float(digits) / PER_SECOND[unit]
    except (KeyError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{text[:40]!r} must be a time such as 0.5us, 500ns or 1e-6s")
    return seconds
