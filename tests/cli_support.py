"""The command line run within a test."""

from ficco_sim.cli import main


def run(capsys, *arguments: str) -> str:
    """Run ficco with good input; returns what it printed, with nothing on the error stream."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert captured.err == ""
    return captured.out


def fail(capsys, *arguments: str) -> str:
    """Run with bad input; the error is on the error stream alone, without a traceback."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines
    assert all(line.startswith("ficco: error: ") for line in lines)
    assert "Traceback" not in captured.err
    assert "internal error" not in captured.err
    return captured.err
