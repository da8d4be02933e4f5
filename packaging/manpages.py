"""Writes the manual pages. packaging/man/*.in have the text; the programs provide the commands, options and settings for @TOPICS@,
@GLOBAL@, @OPTIONS@ and @SETTINGS@, so no page can differ from them. Each command of moorage(1) gets a page of its own,
and each alias a page that leads to it.

    manpages.py MOORAGE MOORAGED CONFIG-FILE OUTPUT-DIRECTORY

It empties OUTPUT-DIRECTORY and fills it with man1, man5 and man8.
"""

import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def roff(text):
    """Escapes text for roff: no line is a command, and a hyphen stays a hyphen."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def output_of(*argv):
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


def page_name(command):
    return "moorage-" + command["name"].replace(" ", "-")


def synopsis(command):
    words = [f"\\fBmoorage {roff(command['name'])}\\fR"]
    words += ["[\\fIOPTIONS\\fR]"] if any(not o["argument"] for o in command["options"]) else []
    words += [argument_label(o) for o in command["options"] if o["argument"]]
    words += ["\\-\\- \\fICOMMAND\\fR..."] if " -- " in command["example"] and not any(o["names"] == "COMMAND" for o in command["options"]) else []
    return " ".join(words)


def references(names):
    return ",\n".join(f".BR {roff(name)} (1)" for name in names)


def command_page(command, table, version):
    title = page_name(command)
    text = f'.TH {roff(title.upper())} 1 "" "moorage {version}" "User Commands"\n'
    text += f".SH NAME\n{roff(title)} \\- {roff(command['summary'])}\n.SH SYNOPSIS\n{synopsis(command)}\n"
    if command["aliases"]:
        text += ".PP\nAlso: " + ", ".join(f"\\fBmoorage {roff(alias)}\\fR" for alias in command["aliases"]) + ".\n"
    items = [("ARGUMENTS", [item(f"\\fI{roff(o['names'])}\\fR", o["help"]) for o in command["options"] if o["argument"]]),
             ("OPTIONS", [item(option_label(o), o["help"]) for o in command["options"] if not o["argument"]])]
    for heading, entries in items:
        text += f".SH {heading}\n" + "".join(entries) if entries else ""
    text += ".PP\nThe options of every command are in\n.BR moorage (1).\n"
    text += ".SH EXAMPLE\n.nf\n.RS\n" + roff(command["example"]) + "\n.RE\n.fi\n"
    others = [page_name(other) for other in table["commands"] if other["topic"] == command["topic"] and other is not command]
    return text + ".SH SEE ALSO\n" + references(["moorage"] + others) + "\n"


def topics_text(table):
    text = ""
    for topic in table["topics"]:
        text += f".SS {roff(topic['name'])}\n{roff(topic['about'][:1].upper() + topic['about'][1:])}.\n"
        for command in table["commands"]:
            if command["topic"] == topic["name"]:
                text += f".TP\n.BR {roff(page_name(command))} (1)\n{roff(command['summary'])}\n"
    return text


def daemon_options(mooraged):
    lines = re.findall(r"^  ((?:--[a-z-]+(?: [A-Z.=]+)? *)+)(?:  +(\S.*))?$", output_of(mooraged, "--help"), re.M)
    if len(lines) < 6:
        raise SystemExit(f"cannot parse mooraged --help: {lines}")
    return "".join(item("\\fB" + roff(names.strip()) + "\\fR", text or "Print that and exit.") for names, text in lines)


def sentence(text):
    return (text or "")[:1].upper() + (text or "")[1:]


def settings_text(mooraged, file):
    """From the file with all defaults. Fails when a setting is missing there. Sections that are commented out, `policy` and `backends`,
    have examples in place of defaults."""
    text, group, names, part = "", "", [], ""
    for line in pathlib.Path(file).read_text().splitlines():
        part_of_group = re.match(r"^#   ([a-z0-9_]+):(?: +# (.*))?$", line)
        if part_of_group:
            part = part_of_group[1] + "."
            text += f".PP\n\\fB{roff(group)}.{roff(part_of_group[1])}\\fR: {roff(part_of_group[2])}\n" if part_of_group[2] else ""
            continue
        example = re.match(r"^#   (?:- |  )([a-z_]+): (.*?)(?: +# (.*))?$", line)
        if example:
            key, value, help_text = example.groups()
            key = f"{group}.{part}{key}" if part else key
            text += item(f"\\fB{roff(key)}\\fR, such as \\fI{roff(value)}\\fR", sentence(help_text))
            continue
        match = re.match(r"^(# |  )?([a-z_]+):(?: +([^#\s].*?))?(?: +# (.*))?$", line)
        if not match:
            continue
        indent, key, value, help_text = match.groups()
        if indent is None or not value:
            group, part = key, ""
            names += [key] if indent else []
            text += f".SS {roff(key)}\n" + (f"{roff(sentence(help_text))}\n" if help_text else "")
            continue
        name = key if indent == "# " else f"{group}.{key}"
        names.append(name)
        text += item(f"\\fB{roff(name)}\\fR (default \\fI{roff(value)}\\fR)", sentence(help_text))
    known = [line.split()[0] for line in output_of(mooraged, "--config", file, "--show-config").splitlines()]
    if sorted(known) != sorted(names):
        raise SystemExit(f"{file} and mooraged differ: {set(known) ^ set(names)}")
    return text


def write_page(directory, name, text):
    folder = directory / ("man" + name[-1])
    folder.mkdir(exist_ok=True)
    with open(folder / (name + ".gz"), "wb") as raw:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as page:
            page.write(text.encode())


def main():
    moorage, mooraged, config, output = sys.argv[1:]
    directory = pathlib.Path(output)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    table = json.loads(output_of(moorage, "completion", "commands"))
    parts = {
        "@VERSION@": output_of(mooraged, "--version").split()[1],
        "@TOPICS@": topics_text(table),
        "@GLOBAL@": "".join(item(option_label(o), o["help"]) for o in table["global"]),
        "@OPTIONS@": daemon_options(mooraged),
        "@SETTINGS@": settings_text(mooraged, config),
    }
    for template in sorted((HERE / "man").glob("*.in")):
        text = template.read_text()
        for mark, value in parts.items():
            text = text.replace(mark, value.rstrip("\n") if mark != "@VERSION@" else value)
        write_page(directory, template.stem, text)
    for command in table["commands"]:
        write_page(directory, page_name(command) + ".1", command_page(command, table, parts["@VERSION@"]))
        for alias in command["aliases"]:
            write_page(directory, page_name({"name": alias}) + ".1", f".so man1/{page_name(command)}.1\n")


if __name__ == "__main__":
    main()
