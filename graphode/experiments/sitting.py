"""One sitting of a run: read what was finished, or make it, or go on where the last one stopped."""

from collections.abc import Callable
from typing import Any

from rich.console import Console

from graphode.experiments.run_folder import CHECKPOINT, RESULT, RunFolder

Result = dict[str, Any]


def sit(
    config: Any,
    console: Console | None,
    make: Callable[[Any, RunFolder, Console], None],
    line: Callable[[Result], str],
) -> Result:
    """The result of a run, which is said.

    Args:
        config: Settings with `resolved()`, `out` and `fresh`.
        console: Where to say it.
        make: Trains, measures and finishes the folder; goes on from its checkpoint.
        line: A result in one line.
    """
    console = console or Console()
    any_device = getattr(config, "device", None) == "auto"
    config = config.resolved()
    folder = RunFolder(config.out, config, any_device)
    result = None if config.fresh else folder.result
    if result is not None:
        try:
            known = line(result)
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"{folder.path / RESULT} lacks what a result has ({error!r}). It was changed by "
                f"hand, or written by another version; start anew with --fresh."
            ) from error
        say(console, f"{known}\nRead from {folder.path}, finished before (--fresh anew).")
        return result
    try:
        make(config, folder, console)
    except KeyboardInterrupt:
        say(console, _how_to_go_on(folder))
        raise
    finally:
        folder.close()
    result = folder.result  # as it will be read again: what is not finite is None
    assert result is not None
    say(console, f"{line(result)}\nResult: {folder.path / RESULT}")
    return result


def _how_to_go_on(folder: RunFolder) -> str:
    if (folder.path / CHECKPOINT).exists():
        return (
            f"Stopped. {folder.path} is whole: the same command without --fresh goes on from its "
            "last checkpoint, with it starts anew."
        )
    return (
        f"Stopped before the first checkpoint: the same command starts anew in {folder.path}. "
        "--checkpoint-seconds says how often there is one."
    )


def say(console: Console, text: str) -> None:
    """Print text as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
