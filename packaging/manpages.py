"""Writes the manual pages: what is in packaging/man/*.in, with the commands, options and settings that the programs
themselves tell in the places of @COMMANDS@, @GLOBAL@, @OPTIONS@ and @SETTINGS@. So no page can say what is not.

    manpages.py MOORAGE MOORAGED CONFIG-FILE OUTPUT-DIRECTORY
"""

import gzip
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def roff(text):
    """Text as it is: no character is a command, and a hyphen stays one."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def told(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True, env={"LANG": "C.UTF-8"}).stdout


def item(label, text):
    return f".TP\n{label}\n{roff(text)}\n"


def option_label(option):
    names = [f"\\fB{roff(name)}\\fR" for name in option["names"].split(",")]
    value = f" \\fI{roff(option['placeholder'])}\\fR" if option["placeholder"] else ""
    return ", ".join(names) + value


def argument_label(option):
    name = f"\\fI{roff(option['names'])}\\fR" + ("..." if option["repeats"] else "")
    return name if option["required"] else f"[{name}]"


def command_text(command):
    arguments = [o for o in command["options"] if o["argument"]]
    options = [o for o in command["options"] if not o["argument"]]
    usage = [f"\\fBmoorage {roff(command['name'])}\\fR"]
    usage += ["[\\fIOPTIONS\\fR]"] if options else []
    usage += [argument_label(o) for o in arguments]
    text = ".SS " + " ".join(usage) + "\n" + roff(command["summary"]) + ".\n"
    for option in arguments:
        text += item(f"\\fI{roff(option['names'])}\\fR", option["help"])
    for option in options:
        text += item(option_label(option), option["help"])
    return text + ".PP\n.nf\n.RS\n" + roff(command["example"]) + "\n.RE\n.fi\n"


def commands_text(table):
    text, section = "", None
    for command in table["commands"]:
        if command["section"] != section:
            section = command["section"]
            text += ".SH " + roff(section.upper()) + "\n"
        text += command_text(command)
    return text


def daemon_options(mooraged):
    lines = re.findall(r"^  ((?:--[a-z-]+(?: [A-Z.=]+)? *)+)(?:  +(\S.*))?$", told(mooraged, "--help"), re.M)
    if len(lines) < 6:
        raise SystemExit(f"mooraged --help is not understood: {lines}")
    return "".join(item("\\fB" + roff(names.strip()) + "\\fR", text or "Print that and exit.") for names, text in lines)


def sentence(text):
    return (text or "")[:1].upper() + (text or "")[1:]


def settings_text(mooraged, file):
    """From the file with all defaults; it has all settings that there are, or this fails. A section that is a comment there, `policy`,
    has an example in the place of defaults."""
    text, group, names = "", "", []
    for line in pathlib.Path(file).read_text().splitlines():
        example = re.match(r"^#   (?:- |  )([a-z_]+): (.*?)(?: +# (.*))?$", line)
        if example:
            key, value, help_text = example.groups()
            text += item(f"\\fB{roff(key)}\\fR, such as \\fI{roff(value)}\\fR", sentence(help_text))
            continue
        match = re.match(r"^(# |  )?([a-z_]+):(?: +([^#\s].*?))?(?: +# (.*))?$", line)
        if not match:
            continue
        indent, key, value, help_text = match.groups()
        if indent is None or not value:
            group = key
            names += [key] if indent else []
            text += f".SS {roff(key)}\n" + (f"{roff(sentence(help_text))}\n" if help_text else "")
            continue
        name = key if indent == "# " else f"{group}.{key}"
        names.append(name)
        text += item(f"\\fB{roff(name)}\\fR (default \\fI{roff(value)}\\fR)", sentence(help_text))
    known = [line.split()[0] for line in told(mooraged, "--config", file, "--show-config").splitlines()]
    if sorted(known) != sorted(names):
        raise SystemExit(f"{file} and mooraged differ: {set(known) ^ set(names)}")
    return text


def main():
    moorage, mooraged, config, output = sys.argv[1:]
    table = json.loads(told(moorage, "completion", "commands"))
    parts = {
        "@VERSION@": told(mooraged, "--version").split()[1],
        "@COMMANDS@": commands_text(table),
        "@GLOBAL@": "".join(item(option_label(o), o["help"]) for o in table["global"]),
        "@OPTIONS@": daemon_options(mooraged),
        "@SETTINGS@": settings_text(mooraged, config),
    }
    for template in sorted((HERE / "man").glob("*.in")):
        text = template.read_text()
        for mark, value in parts.items():
            text = text.replace(mark, value.rstrip("\n") if mark != "@VERSION@" else value)
        with open(pathlib.Path(output) / (template.stem + ".gz"), "wb") as raw:
            with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as page:
                page.write(text.encode())


if __name__ == "__main__":
    main()
