#include "cli/output/table.h"

#include <algorithm>
#include <array>

#include "cli/output/text.h"

namespace moorage::cli {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 6;  // a shrunk column keeps this width

// In the order of Colour.
constexpr std::array<std::string_view, 6> kCodes{"",         "\x1b[32m", "\x1b[33m",
                                                 "\x1b[31m", "\x1b[2m",  "\x1b[1m"};

}  // namespace

std::string coloured(std::string_view text, Colour colour) {
  if (colour == Colour::plain || text.empty()) return std::string(text);
  return std::string(kCodes.at(static_cast<size_t>(colour))) + std::string(text) + "\x1b[0m";
}

std::vector<size_t> Table::widths(size_t limit) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_) {
    const size_t own = row.size() < columns_.size() ? row.size() - 1 : row.size();
    for (size_t i = 0; i < own; ++i) {
      widths[i] = std::max(widths[i], display_width(printable(row[i].text)));
    }
  }
  size_t total = kGap * (columns_.size() - 1);
  for (const size_t width : widths) total += width;
  while (limit > 0 && total > limit) {
    // Shrink the widest column that may, one character at a time.
    size_t* widest = nullptr;
    for (size_t i = 0; i < widths.size(); ++i) {
      const bool can =
          columns_[i].shrinks && widths[i] > std::max(kNarrowest, columns_[i].title.size());
      if (can && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) break;
    --*widest;
    --total;
  }
  return widths;
}

std::string Table::render(const Style& style) const {
  const std::vector<size_t> fitted = widths(style.width);
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title, Colour::bold);
  std::string out;
  const auto line = [&](const std::vector<Cell>& row) {
    std::string text;
    size_t used = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      const bool runs_over = last && row.size() < columns_.size();
      std::string cell = printable(row[i].text);
      if (style.width > 0) {
        const size_t room = style.width > used ? style.width - used : 1;
        cell = shorten(cell, runs_over ? room : fitted[i]);
      }
      const size_t width = display_width(cell);
      const size_t pad = fitted[i] > width ? fitted[i] - width : 0;
      if (style.colours) cell = coloured(cell, row[i].colour);
      if (columns_[i].right && !runs_over) text.append(pad, ' ');
      text += cell;
      if (!last) text.append((columns_[i].right ? 0 : pad) + kGap, ' ');
      used += fitted[i] + kGap;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line(titles);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string label_line(std::string_view label, std::string_view text, size_t width) {
  std::string out(1, ' ');
  out += printable(label);
  const size_t used = display_width(out);
  out.append(used < width ? width - used : 1, ' ');
  return out + printable(text) + "\n";
}

std::string label_lines(std::string_view label, std::string_view text, int columns, size_t width) {
  const size_t limit = static_cast<size_t>(columns);
  const size_t room = limit > 2 * width ? limit - width : width;
  std::string out, rest(text);
  for (std::string_view head = label; !rest.empty(); head = "") {
    size_t end = rest.size();
    while (end != std::string::npos && display_width(printable(rest.substr(0, end))) > room)
      end = end == 0 ? std::string::npos : rest.rfind(' ', end - 1);
    if (end == std::string::npos || end == 0) end = std::min(rest.find(' ', 1), rest.size());
    out += label_line(head, rest.substr(0, end), width);
    rest.erase(0, std::min(end + 1, rest.size()));
  }
  return out.empty() ? label_line(label, "", width) : out;
}

}  // namespace moorage::cli
