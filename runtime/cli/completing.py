"""`pretzel completion`: shell completion, generated from the argument parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput

DESCRIPTION = "Print a completion script for a shell."
EXAMPLES = """\
  source <(pretzel completion bash)                                    bash, in ~/.bashrc
  pretzel completion zsh > "${fpath[1]}/_pretzel"                      zsh
  pretzel completion fish > ~/.config/fish/completions/pretzel.fish    fish
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Print the script."""
    script = {"bash": bash, "zsh": zsh, "fish": fish}[options.shell](list(commands()))
    out.result({"shell": options.shell, "script": script}, script)
    return Exit.OK


class Option(NamedTuple):
    """An option or a choice of words, as shells need it."""

    words: tuple[str, ...]
    help: str
    choices: tuple[str, ...]


class KnownCommand(NamedTuple):
    """A command with its options."""

    name: str
    help: str
    options: tuple[Option, ...]

    @property
    def words(self) -> list[str]:
        """Everything that can follow the command, except files."""
        flags = [word for option in self.options for word in option.words]
        return flags + [
            word for option in self.options if not option.words for word in option.choices
        ]


def commands() -> Iterator[KnownCommand]:
    """Every command with its options."""
    from runtime.cli.program import COMMANDS, build

    parser = build({command.name for command in COMMANDS})
    inner = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001 (argparse has no other way)
    for command in COMMANDS:
        actions = inner.choices[command.name]._actions  # noqa: SLF001 (as above)
        described = (
            Option(tuple(a.option_strings), (a.help or "").replace("%%", "%"), _choices(a))
            for a in actions
        )
        yield KnownCommand(command.name, command.summary, tuple(described))


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))


def bash(known: list[KnownCommand]) -> str:
    """A function for `complete`."""
    names = " ".join(command.name for command in known)
    cases = "\n".join(
        f'            {command.name}) words="{" ".join(command.words)}" ;;' for command in known
    )
    return f"""\
_pretzel() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words="" files=-f line
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{names} --help --version" files=""
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(compgen $files -W "$words" -- "$word")
}}
complete -o filenames -F _pretzel pretzel
"""


def zsh(known: list[KnownCommand]) -> str:
    """A function for `compdef`."""
    names = "\n".join(f"        {_quoted(f'{one.name}:{one.help}')}" for one in known)
    cases = "\n".join(
        f"        {command.name}) _arguments {' '.join(_zsh_options(command))} '*:file:_files' ;;"
        for command in known
    )
    return f"""\
#compdef pretzel
_pretzel() {{
    local -a commands
    commands=(
{names}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case $words[2] in
{cases}
    esac
}}
compdef _pretzel pretzel
"""


def _zsh_options(command: KnownCommand) -> Iterator[str]:
    for option in command.options:
        about = option.help.replace("[", "(").replace("]", ")").replace(":", " ")
        for word in option.words:
            values = f":value:({' '.join(option.choices)})" if option.choices else ""
            yield _quoted(f"{word}[{about}]{values}")
        if not option.words and option.choices:
            yield _quoted(f"2:action:({' '.join(option.choices)})")


def fish(known: list[KnownCommand]) -> str:
    """Lines for `complete`."""
    lines = []
    for command in known:
        lines.append(
            "complete -c pretzel -n __fish_use_subcommand "
            f"-a {command.name} -d {_quoted(command.help)}"
        )
        inside = f"complete -c pretzel -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            lines += [
                f"{inside} {_fish_flag(word)} -d {_quoted(option.help)}" for word in option.words
            ]
            if not option.words and option.choices:
                lines.append(f"{inside} -a {_quoted(' '.join(option.choices))}")
    return "\n".join(lines) + "\n"


def _fish_flag(word: str) -> str:
    return f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
