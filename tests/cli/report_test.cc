#include <algorithm>
#include <catch2/catch.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/files.h"
#include "cli/client/json_items.h"
#include "cli/output/text.h"
#include "cli/report/changes.h"
#include "cli/report/commands.h"
#include "cli/report/patch.h"
#include "cli/report/writer.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using namespace moorage::cli;
using test::Call;
using test::Ran;
using test::run_moorage;
using test::ScriptedServer;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Make = std::unique_ptr<ReportWriter> (*)(ReportSink);

template <typename Write>
std::string written(Make make, const Write& write) {
  std::string page;
  const auto writer = make([&](std::string_view bytes) { page += bytes; });
  write(*writer);
  return page;
}

std::string cell(Make make, const std::string& value) {
  return written(make, [&](ReportWriter& writer) {
    writer.begin_table({{"A"}, {"B"}});
    writer.row({quoted(value), "end"});
    writer.end_table();
  });
}

std::string file_patch(const std::string& name, size_t lines) {
  std::string patch = "diff --git a/" + name + " b/" + name + "\n@@ -0,0 +1 @@\n";
  for (size_t n = 0; n < lines; ++n) patch += "+line " + std::to_string(n) + "\n";
  return patch;
}

struct Patched {
  std::string page;
  uint64_t files = 0, files_left_out = 0, bytes_left_out = 0;
};

Patched patched(const std::string& patch, const PatchLimits& limits, size_t piece) {
  Patched answer;
  const auto writer = markdown_report([&](std::string_view bytes) { answer.page += bytes; });
  ReportPatch parts(*writer, limits);
  for (size_t at = 0; at < patch.size(); at += piece)
    parts.feed(std::string_view(patch).substr(at, piece));
  parts.finish();
  CHECK(parts.bytes() == patch.size());
  answer.files = parts.files();
  answer.files_left_out = parts.files_left_out();
  answer.bytes_left_out = parts.bytes_left_out();
  return answer;
}

std::string exec_json(size_t n) {
  const std::string second = std::to_string(10 + n % 50);
  return R"({"id":"ex_)" + std::to_string(n) + R"(","state":"exited","exit_code":)" +
         (n % 10 == 0 ? "1" : "0") + R"(,"argv":["make","check"],"started_at":"2026-11-23T18:35:)" +
         second + R"(.000Z","ended_at":"2026-11-23T18:36:)" + second +
         R"(.500Z","output_bytes":0})";
}

// A workspace with `execs` commands and a large patch; a diff of "cold" is refused.
void serve(Call& call, size_t execs, size_t patch_files) {
  call.body();
  const auto json = [&](const std::string& body) { call.reply(200, body, test::json_header()); };
  if (call.path.ends_with("/output")) return call.reply(200, "the end\n");
  if (call.path.ends_with("/tree")) return json(R"({"workspaces":[],"snapshots":[]})");
  if (call.path.ends_with("/snapshots")) return json(R"({"snapshots":[]})");
  if (call.path.ends_with("/status")) return json(R"({"files":[],"truncated":false})");
  if (call.path.ends_with("/file"))
    return call.reply(404, R"({"code":"not_found","message":"no such file","hint":""})");
  if (call.path.ends_with("/history")) {
    const std::string before = call.query("before");
    const size_t end = before.empty() ? execs + 1 : std::stoul(before.substr(3));
    const size_t first = end > 100 ? end - 100 : 1;
    std::string list;
    for (size_t n = first; n < end; ++n) list += (n == first ? "" : ",") + exec_json(n);
    return json(R"({"workspace":{"id":"ws_1"},"execs":[)" + list + R"(],"truncated":)" +
                (first > 1 ? "true}" : "false}"));
  }
  if (call.path.ends_with("/diff") && call.path.find("cold") != std::string::npos) {
    return call.reply(409, R"({"code":"conflict","message":"cold is archived","hint":"thaw | it"})",
                      test::json_header());
  }
  if (call.path.ends_with("/diff") && !call.query("stat").empty())
    return json(R"([{"path":"a[1].txt","added":3,"removed":0,"change":"added"}])");
  if (call.path.ends_with("/diff")) {
    call.begin(200);
    for (size_t n = 0; n < patch_files; ++n) call.chunk(file_patch("f" + std::to_string(n), 1000));
    return call.end();
  }
  const std::string of = call.path.ends_with("/raced") ? "2" : "1";
  json(R"({"id":"ws_1","name":"shop","state":"ready","owner":7,"repo":{"name":"acme/shop"},)"
       R"("forked_from":"sn_5","attempt":{"number":1,"of":)" +
       of + "}}");
}

}  // namespace

TEST_CASE("a value stays in its Markdown cell") {
  CHECK(cell(markdown_report, "plain") == "| A | B |\n|---|---|\n| `plain` | end |\n\n");
  CHECK(has(cell(markdown_report, "a|b"), "| `a\\|b` | end |"));
  CHECK(has(cell(markdown_report, "a\\|b"), "| <code>a&#92;&#124;b</code> | end |"));
  CHECK(has(cell(markdown_report, "`` ` x"), "| ``` `` ` x ``` | end |"));
  CHECK(has(cell(markdown_report, "a\nb\r| c"), "| `a\\nb\\r\\| c` | end |"));
  CHECK(has(cell(markdown_report, "\x1b[31m\xff\u202e"), "| `\\x1b[31m\\xff\\u{202e}` | end |"));
  CHECK(has(cell(markdown_report, ""), "|  | end |"));
}

TEST_CASE("markup in our own words stays text") {
  const std::string page = written(markdown_report, [](ReportWriter& writer) {
    writer.begin("a *b* <c> `d`");
    writer.paragraph(Text("see [x](y) & ").quote("`").say(" | end"));
  });
  CHECK(page == "# a \\*b\\* \\<c\\> \\`d\\`\n\nsee \\[x\\](y) \\& `` ` `` \\| end\n\n");
}

TEST_CASE("a fence is longer than any fence inside") {
  const std::string page = written(
      markdown_report, [](ReportWriter& writer) { writer.block(Block::output, "a\n`````\nb"); });
  CHECK(page == "``````text\na\n`````\nb\n``````\n\n");
}

TEST_CASE("the summary of a fold is text and makes no link") {
  const std::string page = written(markdown_report, [](ReportWriter& writer) {
    writer.begin_fold(Text().quote("</summary>\n\n# x https://e www.e `*").say(": end"), false);
    writer.end_fold();
  });
  CHECK(page ==
        "<details><summary><code>&#60;/summary&#62;&#92;n&#92;n# x https&#58;//e www&#46;e "
        "&#96;&#42;</code>&#58; end</summary>\n\n</details>\n\n");
}

TEST_CASE("values cannot break out of their place in HTML") {
  const std::string hostile = "</td><script>\"'&\x1b\u202e\xff";
  const std::string shown = "&lt;/td&gt;&lt;script&gt;&quot;&#39;&amp;\\x1b\\u{202e}\\xff";
  CHECK(has(cell(html_report, hostile), "<td data-of=\"A\"><code>" + shown + "</code></td>"));
  const std::string page = written(html_report, [&](ReportWriter& writer) {
    writer.begin(hostile);
    writer.heading(hostile);
    writer.facts({{"a", quoted(hostile)}});
    writer.begin_fold(quoted(hostile), true);
    writer.block(Block::output, hostile);
    writer.block(Block::drawing, hostile);
    writer.block(Block::patch, "+" + hostile + "\n-" + hostile + "\n " + hostile);
    writer.end_fold();
    writer.note(hostile);
    writer.end(hostile);
  });
  CHECK_FALSE(has(page, "<script"));
  CHECK_FALSE(has(page, "\x1b"));
  CHECK_FALSE(has(page, "\u202e"));
  CHECK(is_utf8(page));
  CHECK(has(page, "<title>" + shown + "</title>"));
  CHECK(has(page, "<pre>" + shown + "</pre>"));
  CHECK(
      has(page, "<i class=\"a\">+" + shown + "</i>\n<i class=\"d\">-" + shown + "</i>\n " + shown));
}

TEST_CASE("the policy of the page allows its own style only") {
  base::Sha256 hash;
  hash.add(report_style());
  CHECK(report_style_hash() == base64_encode(hash.raw()));
  CHECK(has(written(html_report, [](ReportWriter& writer) { writer.begin("x"); }),
            "default-src 'none'; style-src 'sha256-" + std::string(report_style_hash()) + "'"));
}

TEST_CASE("a patch is split into files however its stream is cut") {
  const std::string patch = file_patch("src/a.txt", 3) + file_patch("b", 1) +
                            "diff --git \"a/x\\n\" \"b/x\\n\"\nnew file mode 100644\n";
  const Patched whole = patched(patch, {}, patch.size());
  for (const size_t piece : {1, 2, 7, 11, 64}) CHECK(patched(patch, {}, piece).page == whole.page);
  CHECK(whole.files == 3);
  CHECK(whole.bytes_left_out == 0);
  CHECK(has(whole.page, "<summary><code>src/a.txt</code></summary>"));
  CHECK(has(whole.page, "+line 2\n```\n"));
}

TEST_CASE("a content line that resembles a file header stays content") {
  const Patched answer = patched(
      "diff --git a/x b/x\n@@ -0,0 +1 @@\n+diff --git a/y b/y\n diff --git a/z b/z\n", {}, 3);
  CHECK(answer.files == 1);
}

TEST_CASE("the report states exactly how many bytes of a patch are left out") {
  const std::string large = file_patch("large", 1000), small = file_patch("small", 2);
  const Patched one = patched(large + small, {.file_bytes = 500, .total_bytes = 100'000}, 100);
  CHECK(one.files_left_out == 0);
  CHECK(one.bytes_left_out > large.size() - 520);
  CHECK(one.bytes_left_out < large.size() - 480);
  CHECK(has(one.page, "Cut here: the last "));
  CHECK(has(one.page, "+line 1\n```\n"));  // of the small one
  const Patched none = patched(large + small, {.file_bytes = 500, .total_bytes = 500}, 100);
  CHECK(none.files_left_out == 1);
  CHECK_FALSE(has(none.page, "small"));
}

TEST_CASE("an endless line is shown in part and takes little memory") {
  const std::string patch = file_patch("x", 1) + "+" + std::string(3 << 20, 'y');
  const Patched cut = patched(patch, {}, 1 << 16);
  CHECK(cut.page.size() < 100 << 10);
  CHECK(cut.bytes_left_out > 2 << 20);
  const Patched full = patched(patch, {.file_bytes = 16 << 20, .total_bytes = 16 << 20}, 1 << 16);
  CHECK(full.bytes_left_out == 0);
  CHECK(std::count(full.page.begin(), full.page.end(), 'y') == (3 << 20) + 2);  // and "summary"
}

TEST_CASE("elements of an array arrive one by one") {
  const std::string answer =
      R"({"workspace":{"a":1},"execs":[{"id":"]}\"{"},{"id":"b","argv":["[","]"]}],"truncated":true})";
  for (const size_t piece : {size_t{1}, size_t{3}, answer.size()}) {
    std::vector<std::string> ids;
    JsonItems items([&](const Json& item) { ids.push_back(item.text("id")); });
    for (size_t at = 0; at < answer.size(); at += piece)
      items.feed(std::string_view(answer).substr(at, piece));
    CHECK(ids == std::vector<std::string>{"]}\"{", "b"});
    CHECK(items.finish().flag("truncated"));
    CHECK(items.finish().number("workspace.a") == 1);
  }
  JsonItems cut([](const Json&) {});
  cut.feed(R"({"execs":[{"id":1})");
  CHECK_THROWS_AS(cut.finish(), base::Error);
}

TEST_CASE("terminal colors are removed, other controls are shown") {
  CHECK(without_colours("\x1b[1;31mred\x1b[0m\x1b[K\r\nnext\rover\x1b[2J") ==
        "red\nnext\rover\x1b[2J");
  CHECK(without_colours("\x1b[") == "\x1b[");
}

TEST_CASE("only valid lines of the log of HEAD are read") {
  const std::string a(40, 'a'), b(40, 'b');
  const auto moves =
      read_head_log(a + " " + b + " An <x> Other <me@x> 1732386903 +0100\tcommit: \x1b one\n" +
                    "nonsense\n" + a + " " + b + "\n" + a + " zz" + b.substr(2) +
                    " n <m> 1 +0\tx\n" + a + " " + b + " n <m> 99999999999999999999 +0\tlast");
  REQUIRE(moves.size() == 2);
  CHECK(moves[0].commit == b);
  CHECK(moves[0].who == "An <x> Other");
  CHECK(moves[0].when == "2024-11-23 18:35:03");
  CHECK(moves[0].what == "commit: \x1b one");
  CHECK(moves[1].when == "");
  CHECK(moves[1].what == "last");
}

TEST_CASE("all commands are counted and the last ones listed") {
  ScriptedServer server([](Call& call) { serve(call, 10'000, 400); });
  const Ran ran = run_moorage({"report", "shop"}, {server.socket_path(), "", {}});
  CHECK(ran.err == "");
  CHECK(ran.code == 0);
  CHECK(has(ran.out, "| **Commands** | 10000 ran, 1000 failed |"));
  CHECK(has(ran.out, "Only the last 200 commands of 10000 are listed"));
  CHECK(has(ran.out, "| `ex_10000` | 2026-11-23 18:35:10 | 1m00s | `make check` | **exited 1** |"));
  CHECK_FALSE(has(ran.out, "`ex_9800`"));
  CHECK(has(ran.out, "of the patch are left out, "));
  CHECK(has(ran.out, "See all: `moorage diff shop`"));
  const Ran full = run_moorage({"report", "shop", "--full"}, {server.socket_path(), "", {}});
  CHECK(has(full.out, "| `ex_1` |"));
  CHECK(has(full.out, "The patch is complete: 400 files, "));
}

TEST_CASE("a report names the attempt of several only") {
  ScriptedServer server([](Call& call) { serve(call, 0, 0); });
  const auto page = [&](const std::string& name) {
    return run_moorage({"report", name}, {server.socket_path(), "", {}}).out;
  };
  CHECK(has(page("raced"), "`sn_5`, attempt 1 of 2"));
  CHECK(has(page("plain"), "`sn_5`"));
  CHECK_FALSE(has(page("plain"), "attempt"));
}

TEST_CASE("a refused part is replaced by the reason, and the other parts follow") {
  ScriptedServer server([](Call& call) { serve(call, 0, 0); });
  const Ran ran = run_moorage({"report", "cold"}, {server.socket_path(), "", {}});
  CHECK(ran.code == 0);
  CHECK(has(ran.out, "## Changes\n\n> Not available: `cold is archived` Hint: `thaw | it`"));
  CHECK(has(ran.out, "No commands yet."));
  CHECK(has(ran.out, "## Not in this report"));
}

TEST_CASE("a report is refused when it cannot be written as requested") {
  ScriptedServer server([](Call& call) { serve(call, 0, 0); });
  const auto refused = [&](const std::vector<std::string>& words) {
    const Ran ran = run_moorage(words, {server.socket_path(), "", {}});
    CHECK(ran.code != 0);
    CHECK(ran.out == "");
    return ran.err;
  };
  CHECK(has(refused({"report", "shop", "--format", "pdf"}),
            "--format takes markdown or html, not 'pdf'"));
  CHECK(has(refused({"--json", "report", "shop"}), "report does not support --json"));
  const std::string file = server.directory() + "/there.html";
  base::write_file(file, "mine");
  CHECK(has(refused({"report", "shop", "-o", file}), "already exists"));
  CHECK(base::read_file(file) == "mine");
  const std::string link = server.directory() + "/link.html";
  REQUIRE(::symlink("there.html", link.c_str()) == 0);
  for (const std::string& other : {link, std::string("/dev/null")})
    CHECK(has(refused({"report", "shop", "-o", other, "--force"}), "is not a regular file"));
  CHECK(base::read_file(file) == "mine");
  CHECK(
      run_moorage({"report", "shop", "-o", file, "--force"}, {server.socket_path(), "", {}}).code ==
      0);
  CHECK(base::read_file(file).starts_with("<!doctype html>"));
}
