// The document of a report, and its two renderers. It is written from front to back, so its length
// costs no memory. Text is escaped for its place: it cannot break out of a table cell, a fence or
// an attribute. Control and bidi characters and invalid UTF-8 appear as escapes. Text from a
// workspace never becomes a link.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moorage::cli {

// A run of text: our own words, a value chosen by somebody else, or a command to type.
struct Piece {
  std::string text;
  bool value = false;
};

class Text {
 public:
  Text() = default;
  Text(std::string words) { add({std::move(words), false}); }
  Text(const char* words) : Text(std::string(words)) {}
  Text& say(std::string words) { return add({std::move(words), false}); }
  Text& quote(std::string value) { return add({std::move(value), true}); }
  Text& append(const Text& other) {
    pieces_.insert(pieces_.end(), other.pieces_.begin(), other.pieces_.end());
    return *this;
  }
  const std::vector<Piece>& pieces() const { return pieces_; }
  bool empty() const { return pieces_.empty(); }

 private:
  Text& add(Piece piece) {
    if (!piece.text.empty()) pieces_.push_back(std::move(piece));
    return *this;
  }
  std::vector<Piece> pieces_;
};

inline Text quoted(std::string value) { return Text().quote(std::move(value)); }

enum class Tone { plain, good, bad };

struct ReportCell {
  Text text;
  Tone tone = Tone::plain;
  ReportCell(Text t, Tone of = Tone::plain) : text(std::move(t)), tone(of) {}
  ReportCell(std::string words) : text(std::move(words)) {}
  ReportCell(const char* words) : text(words) {}
};

struct ReportColumn {
  std::string title;
  bool right = false;
};

enum class Block { output, patch, drawing };

using ReportSink = std::function<void(std::string_view bytes)>;

class ReportWriter {
 public:
  explicit ReportWriter(ReportSink sink) : sink_(std::move(sink)) {}
  virtual ~ReportWriter() = default;
  ReportWriter(ReportWriter&&) = delete;

  virtual void begin(const std::string& title) = 0;  // first, once
  virtual void heading(const std::string& title) = 0;
  virtual void paragraph(const Text& text) = 0;
  virtual void note(const Text& text) = 0;  // a limit or warning
  // Names and their values.
  virtual void facts(const std::vector<std::pair<std::string, Text>>& rows) = 0;
  virtual void begin_table(const std::vector<ReportColumn>& columns) = 0;
  virtual void row(const std::vector<ReportCell>& cells) = 0;  // one for each column
  virtual void end_table() = 0;
  virtual void block(Block kind, std::string_view text) = 0;
  // A part that the reader can fold.
  virtual void begin_fold(const Text& summary, bool open) = 0;
  virtual void end_fold() = 0;
  virtual void end(const Text& footer) = 0;  // last, once

 protected:
  void out(std::string_view bytes) { sink_(bytes); }

 private:
  ReportSink sink_;
};

std::unique_ptr<ReportWriter> markdown_report(ReportSink sink);
std::unique_ptr<ReportWriter> html_report(ReportSink sink);

// The style sheet of the HTML, and its base64 SHA-256 for the page's policy, which forbids all
// scripts and all other styles.
std::string_view report_style();
std::string_view report_style_hash();

}  // namespace moorage::cli
