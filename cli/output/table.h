// Tables and two-column lines of the output. On a narrow terminal the columns marked `shrinks` are
// cut with …; elsewhere nothing is cut, so that scripts see whole names. Cells are escaped here:
// callers pass raw text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::cli {

enum class Colour { plain, green, yellow, red, dim, bold };

std::string coloured(std::string_view text, Colour colour);

struct Column {
  std::string title;
  bool right = false;
  bool shrinks = false;
  Column(const char* t, bool to_right = false, bool can_shrink = false)
      : title(t), right(to_right), shrinks(can_shrink) {}
};
inline Column right(const char* title) { return {title, true}; }
inline Column shrinks(const char* title) { return {title, false, true}; }

struct Cell {
  std::string text;
  Colour colour = Colour::plain;
  Cell(std::string t, Colour c = Colour::plain) : text(std::move(t)), colour(c) {}
  Cell(const char* t) : text(t) {}
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // In a row with fewer cells than columns the last cell spans the rest of the line.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  struct Style {
    size_t width = 0;  // 0: never cut
    bool colours = false;
  };
  std::string render(const Style& style) const;

 private:
  std::vector<size_t> widths(size_t limit) const;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// " ready    auth   /workspace": a word, and its text from column `width` on.
std::string label_line(std::string_view label, std::string_view text, size_t width = 10);
// The same, wrapped at spaces to `columns` and indented.
std::string label_lines(std::string_view label, std::string_view text, int columns,
                        size_t width = 10);

}  // namespace moorage::cli
