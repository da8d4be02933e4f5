"""Writes units: files that compile several sources together. Arguments: a directory for the units, the include directories
joined with `:`, then the sources. Prints a line for each unit: the unit and its sources, separated by `;`. A source in no
line compiles alone.

A unit is the same program as its sources, because what is private to one is out of reach for the others. Private are the
names in unnamed namespaces, `static` names, aliases and `using` declarations. All headers come first. Then a macro adds
a number to each private name, for the text of its source alone. That is safe where the source has the name only
unqualified: a member of that name belongs to others. Where it is not, two sources share a unit only if neither mentions
the private name of the other and no header of one declares it, or if both have the same alias. A source whose
declarations reach further compiles alone: a macro, `using namespace`, `using enum`, an enumeration without a scope,
an operator.

This reads the form that clang-format gives: what begins in the first column is a declaration at namespace scope.
"""

import functools
import pathlib
import re
import sys

# A unit of this size takes up to 1.2 GB of memory. Larger ones save little, and the processors need several to share.
MOST_LINES = 4000

NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.S)
INCLUDE = re.compile(r"^#include .*$", re.M)
ALONE = re.compile(r"^ *#(?:define|undef)\b|^ *using namespace\b|^using enum\b|^ *enum (?!class\b)", re.M)
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.M | re.S)
DIRECTIVE = re.compile(r"^#.*$", re.M)
ALIAS = re.compile(r"^(?:using|namespace) [^;{]*;$", re.M)
STATIC = re.compile(r"^static [^;{=]*[;{=]|^MOORAGE_CRASH_POINT[^;]*;", re.M)
DECLARATION = re.compile(r"^(?:\} |\[\[.*?\]\]\s*)?[A-Za-z_][^;{=]*[;{=]", re.M)
# Neither a member nor what a qualifier leads to.
MENTIONED = re.compile(r"(?<![\w.:])(?<!->)[A-Za-z_]\w*")
QUALIFIED = re.compile(r"(?:\.|->|::)\s*([A-Za-z_]\w*)")


class Source:
    def __init__(self, path, places):
        self.path, self.text = path, read(path)
        self.lines = self.text.count("\n")
        code = code_of(path)
        unnamed = UNNAMED.findall(self.text)
        if len(unnamed) != self.text.count("namespace {"):
            raise ValueError(f"{path}: an unnamed namespace is not as clang-format writes it")
        self.aliases = set(ALIAS.findall(code))
        declared = self.aliases | set(STATIC.findall(code))
        for body in unnamed:
            declared.update(DECLARATION.findall(without_literals(body)))
        private = {name_of(declaration) for declaration in declared} - {None}
        self.alone = bool(ALONE.search(code)) or "operator" in private
        # BOOST_DESCRIBE makes text of names.
        self.bare = set() if "BOOST_DESCRIBE" in code else private - set(QUALIFIED.findall(code))
        self.private = private - self.bare
        self.headers = headers_of(path, places)
        self.includes = INCLUDE.findall(self.text)

    def shares_with(self, other):
        return not (self.alone or other.alone or self.reaches(other) or other.reaches(self))

    def reaches(self, other):
        """Whether `other` mentions a private name of this source that no macro changes, or a header of `other` declares it."""
        private = self.private - {name_of(alias) for alias in self.aliases & other.aliases}
        return bool(private & mentioned(other.path)) or any(private & declared(path) for path in other.headers - self.headers)


def name_of(declaration):
    """The name that it declares. None for static_assert, and for the definition of a member."""
    macro = re.match(r"[A-Z_]+\((\w+)", declaration)
    if macro:
        return macro[1]
    text, count = re.sub(r"\[\[.*?\]\]|(?:decltype|alignas)\([^)]*\)", "", declaration), 1
    while count:
        text, count = re.subn(r"<[^<>]*>", "", text)
    if "operator" in text:
        return "operator"
    kind = re.match(r"(?:struct|class|union|enum class) (\w+)(?: final)?\s*(?:[:{]|$)", text)
    if kind:  # its base classes follow
        return kind[1]
    if text.startswith("using "):
        return re.search(r"(\w+)\s*[=;]", text)[1]
    name = re.search(r"(::)?(\w+)\s*[(\[;{=]", text)
    return None if name[1] or name[2] in ("struct", "static_assert") else name[2]


@functools.cache
def read(path):
    return path.read_text()


def without_literals(text):
    return NOT_CODE.sub(lambda found: " " if found[0][0] == "/" else '""', text)


@functools.cache
def code_of(path):
    return without_literals(read(path))


@functools.cache
def mentioned(path):
    return set(MENTIONED.findall(code_of(path)))


@functools.cache
def declared(header):
    return set(map(name_of, DECLARATION.findall(DIRECTIVE.sub("", code_of(header)))))


@functools.cache
def included(path, places):
    """The project's headers that it includes itself."""
    candidates = ([place / name for place in (path.parent, *places)] for name in re.findall(r'^#include "([^"]+)"$', read(path), re.M))
    return {next(file.resolve() for file in files if file.exists()) for files in candidates if any(map(pathlib.Path.exists, files))}


def headers_of(path, places):
    found, left = set(), [path]
    while left:
        new = included(left.pop(), places) - found
        found |= new
        left += new
    return found


def units(sources):
    found = []
    for source in sources:
        for unit in found:
            if sum(member.lines for member in unit) + source.lines <= MOST_LINES and all(map(source.shares_with, unit)):
                unit.append(source)
                break
        else:
            found.append([source])
    return found


def write(unit, file):
    lines = list(dict.fromkeys(include for source in unit for include in source.includes))
    for number, source in enumerate(unit):
        lines += [f"#define {name} {name}_{number}" for name in sorted(source.bare)]
        lines.append(f'#include "{source.path}"')
        lines += [f"#undef {name}" for name in sorted(source.bare)]
    text = "\n".join(lines) + "\n"
    if not file.exists() or file.read_text() != text:  # otherwise it would compile again
        file.write_text(text)


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    places = tuple(pathlib.Path(place) for place in sys.argv[2].split(":"))
    found = units([Source(pathlib.Path(word), places) for word in sorted(sys.argv[3:])])
    for number, unit in enumerate(unit for unit in found if len(unit) > 1):
        file = directory / f"unit_{number}.cc"
        write(unit, file)
        print(";".join(map(str, (file, *(source.path for source in unit)))))


if __name__ == "__main__":
    main()
