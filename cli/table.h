// Tables and two-column lines of the output. A table is made whole, then fitted: on a terminal that
// is too narrow the columns marked `shrinks` give way, cut with …; elsewhere nothing is cut, so
// that scripts see whole names. Cells are escaped here; callers pass text as it came.
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
};

struct Cell {
  std::string text;
  Colour colour = Colour::plain;
  Cell(std::string t, Colour c = Colour::plain) : text(std::move(t)), colour(c) {}
  Cell(const char* t) : text(t) {}
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // A row with fewer cells than columns ends in a cell that runs over the rest of the line.
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

// " ready    auth   /workspace": a word, and what there is to say about it from column `width` on.
std::string label_line(std::string_view label, std::string_view text, size_t width = 10);
// The same over as many lines as it takes to stay within `columns`: broken at spaces, indented.
std::string label_lines(std::string_view label, std::string_view text, int columns,
                        size_t width = 10);

}  // namespace moorage::cli
