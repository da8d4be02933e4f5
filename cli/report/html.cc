// Reports as HTML: one file without scripts or external resources, in the reader's light or dark
// theme.
#include "cli/output/text.h"
#include "cli/report/writer.h"

namespace moorage::cli {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--ink:#1c2328;--dim:#5d6a73;--paper:#fff;--card:#f5f7f8;--line:#dbe1e5;
--good:#14713c;--bad:#b3261e;--add:#e3f6e8;--del:#fde9e7;--hunk:#5a4fa3;--note:#fff6dd}
@media(prefers-color-scheme:dark){:root{--ink:#dfe5e8;--dim:#98a5ad;--paper:#14191c;--card:#1c2327;
--line:#323c42;--good:#6fcf8f;--bad:#ff8a80;--add:#15331f;--del:#3d1d1b;--hunk:#b3a8f5;--note:#332b12}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2.5rem 1.25rem 4rem;max-width:64rem;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 1rem}
h2{font-size:1.2rem;margin:2.75rem 0 .75rem;padding-bottom:.35rem;border-bottom:1px solid var(--line)}
p{margin:.6rem 0}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{font-size:.875em;padding:.1em .3em;background:var(--card);border-radius:4px}
pre{margin:.6rem 0;padding:.8rem 1rem;background:var(--card);border:1px solid var(--line);border-radius:8px;
overflow-x:auto;font-size:.8125rem;line-height:1.45;overflow-wrap:normal;tab-size:4}
.drawing{font-size:.875rem}
.note{padding:.6rem .9rem;background:var(--note);border-radius:8px}
dl{display:grid;grid-template-columns:9rem 1fr;gap:.35rem 1rem;margin:1rem 0}
dt{color:var(--dim)}
dd{margin:0}
.wide{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th{text-align:left;font-weight:600;color:var(--dim);white-space:nowrap}
th,td{padding:.4rem .9rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td{min-width:4rem}
td code{padding:0;background:none}
.r{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.good{color:var(--good)}
.bad{color:var(--bad);font-weight:600}
details{margin:.5rem 0}
summary{cursor:pointer;padding:.3rem 0}
i{font-style:normal}
.a,.d,.h,.f{display:inline-block;min-width:100%}
.a{background:var(--add)}
.d{background:var(--del)}
.h{color:var(--hunk)}
.f{font-weight:600}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);color:var(--dim);font-size:.875rem}
@media(max-width:40rem){body{padding:1.25rem .9rem 3rem}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:.6rem}thead{display:none}table,tbody,tr,td,.r{display:block;text-align:left}
tr{padding:.5rem 0;border-bottom:1px solid var(--line)}td{border:0;padding:.1rem 0 .1rem 8rem;min-height:1.6em}
td:empty{display:none}td::before{content:attr(data-of);float:left;width:7.5rem;margin-left:-8rem;color:var(--dim);font-weight:400}}
@media print{body{max-width:none;padding:0}pre{white-space:pre-wrap}}
)";
// base64 of the SHA-256 of kStyle; a failing test prints the right value.
constexpr std::string_view kStyleHash = "J50eiPiBdsSR0Q2U/l3vStVDyPHP08PqL081k7uXNu0=";

std::string_view entity_of(char c) {
  if (c == '&') return "&amp;";
  if (c == '<') return "&lt;";
  if (c == '>') return "&gt;";
  if (c == '"') return "&quot;";
  return c == '\'' ? "&#39;" : "";
}

// Takes the result of printable().
std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  for (const char& c : text) {
    const std::string_view entity = entity_of(c);
    out += entity.empty() ? std::string_view(&c, 1) : entity;
  }
  return out;
}

std::string render(const Text& text) {
  std::string out;
  bool after_value = false;
  for (const Piece& piece : text.pieces()) {
    if (piece.value && after_value) out += ' ';
    const std::string shown = escaped(printable(piece.text));
    out += piece.value ? "<code>" + shown + "</code>" : shown;
    after_value = piece.value;
  }
  return out;
}

// The class of a line of a patch. It affects the color alone, so a hunk line that resembles a
// header may get the wrong one.
std::string_view class_of(std::string_view line) {
  for (const std::string_view head :
       {"diff ", "+++ ", "--- ", "index ", "new file", "deleted file", "old mode", "new mode"}) {
    if (line.starts_with(head)) return "f";
  }
  if (line.starts_with('+')) return "a";
  if (line.starts_with('-')) return "d";
  return line.starts_with("@@") ? "h" : "";
}

std::string coloured_patch(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const std::string_view of = class_of(line);
    const std::string shown = escaped(printable_lines(line));
    out += of.empty() ? shown : "<i class=\"" + std::string(of) + "\">" + shown + "</i>";
    out += '\n';
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

class Html : public ReportWriter {
 public:
  using ReportWriter::ReportWriter;

  void begin(const std::string& title) override {
    const std::string shown = escaped(printable(title));
    out("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'sha256-" +
        std::string(kStyleHash) +
        "'; base-uri 'none'; form-action 'none'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<meta name=\"referrer\" content=\"no-referrer\">\n<title>" +
        shown + "</title>\n<style>" + std::string(kStyle) + "</style>\n</head>\n<body>\n<h1>" +
        shown + "</h1>\n");
  }
  void heading(const std::string& title) override {
    out("<h2>" + escaped(printable(title)) + "</h2>\n");
  }
  void paragraph(const Text& text) override { out("<p>" + render(text) + "</p>\n"); }
  void note(const Text& text) override { out("<p class=\"note\">" + render(text) + "</p>\n"); }

  void facts(const std::vector<std::pair<std::string, Text>>& rows) override {
    out("<dl>\n");
    for (const auto& [name, text] : rows)
      out("<dt>" + escaped(printable(name)) + "</dt><dd>" + render(text) + "</dd>\n");
    out("</dl>\n");
  }

  void begin_table(const std::vector<ReportColumn>& columns) override {
    columns_ = columns;
    std::string head = "<div class=\"wide\"><table>\n<thead><tr>";
    for (const ReportColumn& column : columns) {
      head += column.right ? "<th class=\"r\">" : "<th>";
      head += escaped(printable(column.title)) + "</th>";
    }
    out(head + "</tr></thead>\n<tbody>\n");
  }
  void row(const std::vector<ReportCell>& cells) override {
    std::string line = "<tr>";
    for (size_t n = 0; n < cells.size(); ++n) {
      const ReportColumn& column = columns_[n];
      std::string classes = column.right ? "r" : "";
      if (cells[n].tone != Tone::plain) classes += cells[n].tone == Tone::good ? " good" : " bad";
      if (!classes.empty()) classes = " class=\"" + classes + "\"";
      // The title again, because a narrow page hides the head row.
      line += "<td" + classes + " data-of=\"" + escaped(printable(column.title)) + "\">";
      line += render(cells[n].text) + "</td>";
    }
    out(line + "</tr>\n");
  }
  void end_table() override { out("</tbody></table></div>\n"); }

  void block(Block kind, std::string_view text) override {
    if (kind == Block::patch) return out("<pre>" + coloured_patch(text) + "</pre>\n");
    const std::string head = kind == Block::drawing ? "<pre class=\"drawing\">" : "<pre>";
    // HTML drops a line end right after <pre>.
    out(head + (text.starts_with('\n') ? "\n" : "") + escaped(printable_lines(text)) + "</pre>\n");
  }

  void begin_fold(const Text& summary, bool open) override {
    out(std::string(open ? "<details open>" : "<details>") + "<summary>" + render(summary) +
        "</summary>\n");
  }
  void end_fold() override { out("</details>\n"); }

  void end(const Text& footer) override {
    out("<footer>" + render(footer) + "</footer>\n</body>\n</html>\n");
  }

 private:
  std::vector<ReportColumn> columns_;
};

}  // namespace

std::string_view report_style() { return kStyle; }

std::string_view report_style_hash() { return kStyleHash; }

std::unique_ptr<ReportWriter> html_report(ReportSink sink) {
  return std::make_unique<Html>(std::move(sink));
}

}  // namespace moorage::cli
