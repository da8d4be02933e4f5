// Live counters and the text that Prometheus reads (exposition format 0.0.4). Counting takes one or
// two atomic additions and never blocks; a scrape reads the current values. Names are moorage_*,
// units are seconds and bytes; labels never contain values that a user chose.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace moorage::base {

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Upper bounds in seconds, ascending: for answers, and for commands that may take a day.
inline constexpr std::array kAnswerBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                          0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0};
inline constexpr std::array kCommandBounds{0.01, 0.05,  0.1,   0.5,    1.0,     5.0,    15.0,
                                           60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0};

class Histogram {
 public:
  using Clock = std::chrono::steady_clock;
  // `bounds` must outlive the histogram.
  explicit Histogram(std::span<const double> bounds = kAnswerBounds) : bounds_(bounds) {}
  void observe(double seconds);
  void observe_since(Clock::time_point began) {
    observe(std::chrono::duration<double>(Clock::now() - began).count());
  }

 private:
  friend class Exposition;
  static constexpr size_t kMostBounds = 15;
  std::span<const double> bounds_;
  std::array<std::atomic<uint64_t>, kMostBounds + 1> counts_{};  // per bucket; last: beyond
  std::atomic<uint64_t> sum_us_{0};
};

class Exposition {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;
  enum class Type { counter, gauge, histogram };

  // Begins a metric; its samples follow until the next one begins.
  Exposition& metric(std::string_view name, Type type, std::string_view help);
  Exposition& sample(double value, Labels labels = {});
  Exposition& sample(uint64_t value, Labels labels = {});
  Exposition& sample(const Counter& counter, Labels labels = {}) {
    return sample(counter.value(), labels);
  }
  Exposition& sample(const Histogram& histogram, Labels labels = {});
  const std::string& text() const { return text_; }

 private:
  void line(std::string_view suffix, const std::string& labels, const std::string& value);

  std::string name_;
  std::string text_;
};

}  // namespace moorage::base
