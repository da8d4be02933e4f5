// Reports as Markdown in the dialect of GitHub and GitLab, readable as plain text.
#include <algorithm>

#include "cli/output/text.h"
#include "cli/report/writer.h"

namespace moorage::cli {
namespace {

size_t longest_run_of_backticks(std::string_view text) {
  size_t longest = 0, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

// Writes everything that could be markup or a link as &#NN;, which Markdown never parses again.
std::string as_entities(std::string_view text) {
  constexpr std::string_view kMarkup = "\\`*_[]<>|~&:@$";
  std::string out;
  char before = 0;
  for (const char c : text) {
    const bool of_www = c == '.' && (before == 'w' || before == 'W');
    const bool plain = kMarkup.find(c) == std::string_view::npos && !of_www;
    out += plain ? std::string(1, c) : "&#" + std::to_string(static_cast<int>(c)) + ";";
    before = c;
  }
  return out;
}

std::string words(const std::string& text) {
  constexpr std::string_view kMarkup = "\\`*_[]<>#|~&";
  std::string out;
  for (const char c : printable(text)) {
    if (kMarkup.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string code_span(const std::string& value, bool in_table) {
  std::string text = printable(value);
  if (in_table && text.find('|') != std::string::npos) {
    // In a table "\|" is a bar, but programs disagree about "\\|".
    if (text.find("\\|") != std::string::npos) return "<code>" + as_entities(text) + "</code>";
    for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
      text.insert(at, "\\");
  }
  const bool only_spaces = text.find_first_not_of(' ') == std::string::npos;
  const bool pad = text.front() == '`' || text.back() == '`' ||
                   (text.front() == ' ' && text.back() == ' ' && !only_spaces);
  const std::string fence(longest_run_of_backticks(text) + 1, '`');
  const std::string space(pad ? " " : "");
  return fence + space + text + space + fence;
}

std::string render(const Text& text, bool in_table) {
  std::string out;
  bool after_value = false;
  for (const Piece& piece : text.pieces()) {
    // Two adjacent spans would merge without a space.
    if (piece.value && after_value) out += ' ';
    out += piece.value ? code_span(piece.text, in_table) : words(piece.text);
    after_value = piece.value;
  }
  return out;
}

class Markdown : public ReportWriter {
 public:
  using ReportWriter::ReportWriter;

  void begin(const std::string& title) override { out("# " + words(title) + "\n\n"); }
  void heading(const std::string& title) override { out("## " + words(title) + "\n\n"); }
  void paragraph(const Text& text) override { out(render(text, false) + "\n\n"); }
  void note(const Text& text) override { out("> " + render(text, false) + "\n\n"); }

  void facts(const std::vector<std::pair<std::string, Text>>& rows) override {
    out("| | |\n|---|---|\n");
    for (const auto& [name, text] : rows)
      out("| **" + words(name) + "** | " + render(text, true) + " |\n");
    out("\n");
  }

  void begin_table(const std::vector<ReportColumn>& columns) override {
    std::string titles = "|", rule = "|";
    for (const ReportColumn& column : columns) {
      titles += " " + words(column.title) + " |";
      rule += column.right ? "---:|" : "---|";
    }
    out(titles + "\n" + rule + "\n");
  }
  void row(const std::vector<ReportCell>& cells) override {
    std::string line = "|";
    for (const ReportCell& cell : cells) {
      const std::string text = render(cell.text, true);
      const bool bad = cell.tone == Tone::bad && !text.empty();
      line += bad ? " **" + text + "** |" : " " + text + " |";
    }
    out(line + "\n");
  }
  void end_table() override { out("\n"); }

  void block(Block kind, std::string_view text) override {
    std::string shown = printable_lines(text);
    if (!shown.ends_with('\n')) shown += '\n';
    const std::string fence(std::max<size_t>(3, longest_run_of_backticks(shown) + 1), '`');
    out(fence + (kind == Block::patch ? "diff\n" : "text\n"));
    out(shown);
    out(fence + "\n\n");
  }

  void begin_fold(const Text& summary, bool open) override {
    std::string text;
    for (const Piece& piece : summary.pieces()) {
      const std::string escaped = as_entities(printable(piece.text));
      text += piece.value ? "<code>" + escaped + "</code>" : escaped;
    }
    out(std::string(open ? "<details open>" : "<details>") + "<summary>" + text + "</summary>\n\n");
  }
  void end_fold() override { out("</details>\n\n"); }

  void end(const Text& footer) override { out("---\n\n" + render(footer, false) + "\n"); }
};

}  // namespace

std::unique_ptr<ReportWriter> markdown_report(ReportSink sink) {
  return std::make_unique<Markdown>(std::move(sink));
}

}  // namespace moorage::cli
