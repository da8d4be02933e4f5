#include "base/spelling.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace moorage::base {

namespace {

// Letters to insert, drop or change, or neighbors to swap (optimal string alignment), row by row.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

std::optional<std::string> nearest_spelling(std::string_view name,
                                            const std::vector<std::string_view>& known) {
  std::string_view best;
  size_t best_distance = name.size() / 3 + 1;
  for (const std::string_view candidate : known) {
    const size_t whole = distance(name, candidate);
    // One more than the distance of the keys, so the group as typed wins if it has the key.
    const size_t key = distance(last_part(name), last_part(candidate)) + 1;
    const size_t smaller = std::min(whole, key);
    if (smaller < best_distance) {
      best_distance = smaller;
      best = candidate;
    }
  }
  if (best.empty()) return std::nullopt;
  return std::string(best);
}

}  // namespace moorage::base
