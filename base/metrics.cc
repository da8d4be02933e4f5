#include "base/metrics.h"

#include <algorithm>
#include <cassert>

#include "base/size_text.h"

namespace moorage::base {
namespace {

std::string label_text(Exposition::Labels labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    text.append(text.empty() ? "" : ",").append(name).append("=\"");
    for (const char c : value) {
      if (c == '\\' || c == '"') text += '\\';
      c == '\n' ? text += "\\n" : text += c;
    }
    text += '"';
  }
  return text;
}

}  // namespace

void Histogram::observe(double seconds) {
  assert(bounds_.size() <= kMostBounds);
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), seconds);
  counts_.at(static_cast<size_t>(bound - bounds_.begin())).fetch_add(1, std::memory_order_relaxed);
  sum_us_.fetch_add(static_cast<uint64_t>(std::max(0.0, seconds) * 1e6), std::memory_order_relaxed);
}

Exposition& Exposition::metric(std::string_view name, Type type, std::string_view help) {
  constexpr std::array<std::string_view, 3> kTypes{"counter", "gauge", "histogram"};
  name_ = name;
  text_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " ";
  text_.append(kTypes.at(static_cast<size_t>(type))).append("\n");
  return *this;
}

void Exposition::line(std::string_view suffix, const std::string& labels,
                      const std::string& value) {
  text_.append(name_).append(suffix);
  if (!labels.empty()) text_ += "{" + labels + "}";
  text_ += " " + value + "\n";
}

Exposition& Exposition::sample(double value, Labels labels) {
  line("", label_text(labels), number_text(value));
  return *this;
}

Exposition& Exposition::sample(uint64_t value, Labels labels) {
  line("", label_text(labels), std::to_string(value));
  return *this;
}

// The count is the sum of the buckets read, so both agree while others count.
Exposition& Exposition::sample(const Histogram& histogram, Labels labels) {
  const std::string own = label_text(labels);
  const std::string before = own.empty() ? "" : own + ",";
  uint64_t count = 0;
  for (size_t i = 0; i <= histogram.bounds_.size(); ++i) {
    count += histogram.counts_.at(i).load(std::memory_order_relaxed);
    const bool last = i == histogram.bounds_.size();
    line("_bucket", before + "le=\"" + (last ? "+Inf" : number_text(histogram.bounds_[i])) + "\"",
         std::to_string(count));
  }
  line("_sum", own, number_text(static_cast<double>(histogram.sum_us_.load()) / 1e6));
  line("_count", own, std::to_string(count));
  return *this;
}

}  // namespace moorage::base
