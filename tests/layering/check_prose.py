"""The prose that people read is plain English. Arguments: the source directory, then path prefixes to check (default: all).

Checks comments and string literals of product code, documents, scripts, and the names of tests, but not identifiers: words with
an underscore, dot, slash, colon or a call's parenthesis, and text in backticks, are blanked first. A hit suggests a replacement.
"""

import io
import pathlib
import re
import sys
import tokenize

CODE = ["base", "config", "state_db", "repo_cache", "backends", "workspace", "warden", "outpost", "daemon", "cli", "layers", "packs"]
TEXTS = ["docs", "scripts", "packaging", "sdk", "README.md", "CONTRIBUTING.md"]

# (regular expression, replacement); ignores case; all white space counts as one space.
BANNED = [
    (r"(?<!\bthere )\b(is|are|was|were) no (?!longer\b|more\b|fewer\b|less\b|\w+er than\b|such\b)", "is not an X; has no X"),
    (r"(?<!\bthere )\b(is|are|was|were) none\b", "is not an X; X is invalid"),
    (r"\bno \w+ (is|are|was|were) (made|had|taken|told)\b", "cannot create an X: why"),
    (r"\bnothing (that|which) (is|was) not\b", "say it without a double negative"),
    (r"(?:\A|[.;:!?] )what (is|are|was|were|can|cannot|could|may|must|has|had|goes|runs|ran|comes|came|lies|stands|stood|stays|"
     r"never|waits|vanishes|changed|left|leaves|reads|grows|makes|does|did|would|will|moved|took|takes|gets|works|belongs|follows)\b"
     r"[^.?!;]*(?=[.!;]|\Z)", "name the subject: not 'what is X'"),
    (r"(?:\A|[.!?] )what (?!if\b)[^.?!:;]* (is|are|was|were) [^.?!:;]*(?=[.!;]|\Z)", "name the subject instead of 'what ... is ...'"),
    (r"(?:\A|[.!?] )who(ever|se)? (?!may\b|can\b)[^.?!]*(?=[.!;]|\Z)", "the user who ...; the process that ..."),
    (r"\b(from|of|to|by|for|with|as|like) who(ever)?\b", "the holder; the caller; the user who ..."),
    (r"\b(is|are|was|were|be|been|being|never|not|had|has|have|gets?) told\b", "is reported; the message says"),
    (r"\btell(s|ing)? (of|about|all|how|what|who|whether|why|which)\b", "shows; reports; lists"),
    (r"\b(is|are|was|were|be) said\b|\bsaid to\b", "is reported; the message says"),
    (r"\bcan not\b", "cannot"),
    (r"\bonce more\b", "again; retry"),
    (r"\bbe had\b|\b(is|are|was|were) had\b|\bhad,? (as|by|of)\b|\bnever had\b", "is available; has; gets"),
    (r"\bas (it|they|he) (is|are|was|were|stands?|stood)\b(?= ?(?:[.,;:)]|\Z)| (?:and|or|but|when|if|in|for|before|until|with)\b)|"
     r"\bstands? as (it|they) did\b", "unchanged; in its current state"),
    (r"\bis now as\b", "now has Y's contents"),
    (r"\bas ever\b", "still; remains usable"),
    (r"\b(a|the|each|every|one|last|next|first|second|later|earlier|its|this|any|whose|of|per|between) looks?(?! like\b| up\b)\b",
     "check; scan; poll; fetch"),
    (r"\blook(s|ed|ing)? (again|once|twice|anew|meanwhile|afterwards)\b", "check again; poll; verify"),
    (r"\b(is|are|was|were|be|been) looked\b|\blooked( \S+){1,3} ago\b|\bthey look like\b", "checked; expected the form X"),
    (r"\bis how (an?|the)? ?\w+ looks?\b", "this form is reserved for X"),
    (r"\bmend(s|ed|ing|er)?\b", "repair"),
    (r"\bbur(y|ies|ied|ying|ial)\b|\bmourn|\bfuneral|\bgraves?\b|\bcorpses?\b|\bwidow", "remove; reap; end"),
    (r"\bnewcomers?\b|\bstrangers?\b", "new process; unknown file; other user's X"),
    (r"\b(new)?born\b|\bbirths?\b|\bheirs?\b|\bmidwi", "creation; start; created"),
    (r"\bof (ours|theirs|his|hers|mine|yours)\b", "our X; the user's X; the daemon's X"),
    (r"\bat rest\b", "idle; unchanged"),
    (r"\bwhole number\b", "integer"),
    (r"'s present\b", "X's contents"),
    (r"\blet \w+ decide\b", "allow X to"),
    (r"\bthat the \w+ answered\b|\bhad (told|answered)\b", "that X returned; reported"),
    (r"[.,;:] all kept\b|\bnone is kept\b", "files kept; No X."),
    (r"\bruns? in it\Z", "still runs in X"),
    (r"\b(older|newer|more|other) ones: ", "showing 2 of 6; all: -n 1000"),
    (r"\bwhat stood on\b|\bstands? on it\b|\bstood on it\b", "depends on it; forks of it"),
    (r"\bnot understood\b", "X takes A, B or C"),
    (r"\bthe field \\?['\"]", "name the option or the JSON member itself: argv[1] must be ..."),
    (r"\bbelongs? to uid\b", "belongs to NAME"),
    (r"\bwas killed: it\b", "exceeded its limit; raise it: ..."),
    (r"\billegal map value\b", "tabs are not allowed in YAML; use spaces"),
    (r"\beverybody's\b", "all users; the whole store"),
    (r"\bnobody ever\b|\bno ?body, and\b", "none; never leased"),
    (r"\bfor news\b", "fetch from upstream"),
    (r"\breason undeleted\b", "restored by undelete"),
]
COMPILED = [(re.compile(pattern, re.I), hint) for pattern, hint in BANNED]

IDENTIFIER = re.compile(r"[\w./:-]*(?:\w_|_\w|\w\.\w|\w/\w|\w::)[\w./:()-]*\w|\b\w+\(\)?|\b[a-z]+[A-Z]\w*|\$\w+|--\w[\w-]*|`[^`\n]*`")
STRING = r'"(?:\\.|[^"\\\n])*"'
CPP = re.compile(r'//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/|R"(\w*)\((.*?)\)\1"|' + STRING + r"(?:\s*" + STRING + r")*|'(?:\\[^']+|[^'\\\n])'", re.S)
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|CREATE|PRAGMA|WITH|DELETE|ALTER)")


def cpp_texts(source):
    """(offset, text) of each comment with its lines joined, and of each string literal with adjacent ones joined."""
    source = re.sub(r"^#include[^\n]*", lambda line: " " * len(line[0]), source, flags=re.M)
    for match in CPP.finditer(source):
        text = match[0]
        if text.startswith("//"):
            yield match.start(), re.sub(r"(^|\n)[ \t]*//+ ?", r"\1", text)
        elif text.startswith("R"):
            comments = re.sub(r"^[^-]*$|^.*?--", "", match[2], flags=re.M)
            yield match.start(), comments if SQL.match(match[2]) else match[2]
        elif text.startswith('"'):
            yield match.start(), re.sub(r'"\s*"', "", text)[1:-1].replace("\\n", "\n").replace('\\"', '"')
        elif text.startswith("/*"):
            yield match.start(), text[2:-2]


def python_texts(source):
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    comment, start = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            start = start if comment else offsets[token.start[0] - 1]
            comment.append(token.string.lstrip("#! "))
        elif comment and token.type not in (tokenize.NL, tokenize.NEWLINE):
            yield start, "\n".join(comment)
            comment = []
        if token.type == tokenize.STRING:
            yield offsets[token.start[0] - 1], token.string.strip("rbfRBF").strip("\"'")


def plain_texts(source, mark):
    """Paragraphs, list entries and table rows. `mark` begins a comment."""
    offset = 0
    for part in re.split(r"(\n[ \t]*" + mark + r"?[ \t]*\n|\n(?=[ \t]*(?:[-*|]|\d+\.) )|\n(?=#+ ))", source):
        if part and not (mark == "" and part.lstrip().startswith("#")):  # headings of Markdown may be questions
            yield offset, re.sub(r"^[ \t]*" + mark + r"+ ?" if mark else r"^[ \t>|*-]+", "", part, flags=re.M)
        offset += len(part)


def sql_texts(source):
    return ((match.start(), re.sub(r"\s*--", " ", match[0])) for match in re.finditer(r"--[^\n]*(?:\n[ \t]*--[^\n]*)*", source))


def texts(name, source):
    if name.suffix in (".h", ".cc"):
        return cpp_texts(source)
    if name.suffix == ".py":
        return python_texts(source)
    if name.suffix == ".sql":
        return sql_texts(source)
    if name.suffix == ".yaml":  # without keys and lists of words
        return plain_texts(re.sub(r"\[[\w, -]+\]|\b[\w-]+:(?= |$)", lambda m: "~" * len(m[0]), source, flags=re.M), "#")
    return plain_texts(source, "" if name.suffix == ".md" else "#")


def test_texts(name, source):
    """Only the names of tests, and their purposes in tiers.txt."""
    if name.name == "tiers.txt":
        return ((m.start(), m[1]) for m in re.finditer(r"^\w+ +(?:short|all) +\d+ +(.*)", source, re.M))
    if name.suffix == ".py":
        return ((m.start(), m[1].replace("_", " ")) for m in re.finditer(r"def test_(?:\d+_)?(\w+)", source))
    if name.suffix == ".cc":
        return ((m.start(), re.sub(r'"\s*"', "", m[1])) for m in re.finditer(
            r'\b(?:TEST_CASE|TEST_CASE_METHOD|SECTION|SCENARIO)\s*\((?:\w+,)?\s*"((?:\\.|[^"\\]|"\s*")*)"', source))
    return ()


def hits(name, source, pieces):
    def line_of(offset, found):
        words = re.findall(r"\w+", found)[:3]
        place = re.compile(r"[\W_]+".join(words), re.I).search(source, offset)
        return source.count("\n", 0, place.start() if place else offset) + 1

    for offset, text in pieces:
        if not re.search(r"\s", text.strip()):
            continue  # a single word, read by programs
        text = re.sub(r"\s+", " ", IDENTIFIER.sub("~", text)).strip()
        for pattern, hint in COMPILED:
            for match in pattern.finditer(text):
                yield f"{name}:{line_of(offset, match[0])}: \"{text[max(0, match.start() - 15):match.end()][:90].strip()}\": instead: {hint}"


def problems(root, wanted):
    files = [(path, False) for top in CODE + TEXTS for path in ([root / top] if (root / top).is_file() else (root / top).rglob("*"))]
    files += [(path, True) for path in (root / "tests").rglob("*")]
    for path, is_test in sorted(files):
        name = path.relative_to(root)
        if not path.is_file() or "__pycache__" in name.parts or (wanted and not any(str(name).startswith(w) for w in wanted)):
            continue
        try:
            source = path.read_text()
        except UnicodeDecodeError:
            continue
        yield from hits(name, source, test_texts(name, source) if is_test else texts(name, source))


def main():
    found = list(problems(pathlib.Path(sys.argv[1]), sys.argv[2:]))
    print("\n".join(found) or "the prose keeps the rules")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
