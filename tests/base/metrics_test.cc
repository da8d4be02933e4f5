#include "base/metrics.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

using namespace moorage::base;

TEST_CASE("metrics are written in Prometheus' format") {
  Exposition page;
  Counter counter;
  counter.add(3);
  page.metric("a_total", Exposition::Type::counter, "Things.").sample(counter, {{"kind", "x"}});
  page.metric("b_seconds", Exposition::Type::gauge, "Time.").sample(0.25);
  CHECK(page.text() ==
        "# HELP a_total Things.\n# TYPE a_total counter\na_total{kind=\"x\"} 3\n"
        "# HELP b_seconds Time.\n# TYPE b_seconds gauge\nb_seconds 0.25\n");
}

TEST_CASE("a label's value cannot escape its quotes") {
  Exposition page;
  page.metric("a", Exposition::Type::gauge, "A.").sample(uint64_t{1}, {{"l", "a\"} 2\nb\\"}});
  CHECK_THAT(page.text(), Catch::EndsWith("\na{l=\"a\\\"} 2\\nb\\\\\"} 1\n"));
}

TEST_CASE("buckets are cumulative, a bound belongs to its own bucket, and the rest is +Inf") {
  static constexpr std::array kBounds{0.1, 1.0};
  Histogram histogram(kBounds);
  for (const double seconds : {0.05, 0.1, 0.5, 2.0, 100.0}) histogram.observe(seconds);
  Exposition page;
  page.metric("h", Exposition::Type::histogram, "H.").sample(histogram, {{"v", "x"}});
  CHECK_THAT(page.text(), Catch::EndsWith("h_bucket{v=\"x\",le=\"0.1\"} 2\n"
                                          "h_bucket{v=\"x\",le=\"1\"} 3\n"
                                          "h_bucket{v=\"x\",le=\"+Inf\"} 5\n"
                                          "h_sum{v=\"x\"} 102.65\nh_count{v=\"x\"} 5\n"));
}

TEST_CASE("concurrent counting loses nothing") {
  Histogram histogram;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 10'000; ++n) histogram.observe(0.5);
    });
  }
  for (auto& thread : threads) thread.join();
  Exposition page;
  page.metric("h", Exposition::Type::histogram, "H.").sample(histogram);
  CHECK_THAT(page.text(), Catch::EndsWith("h_sum 20000\nh_count 40000\n"));
}
