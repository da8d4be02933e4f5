// Checks any number of names of a layer's part in bounded memory.
#include "packs/layer_names.h"

#include <malloc.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "packs/tar_fixture.h"

namespace moorage::packs {
namespace {

using Verdict = LayerNames::Verdict;

std::string name(uint32_t number) { return "layers/0/tree/" + std::to_string(number); }

// Several runs in the file, and one in memory.
constexpr uint32_t kMany = 1'000'000;

Verdict verdict_of(const std::function<void(LayerNames&)>& also_first,
                   const std::function<void(LayerNames&)>& also_last) {
  LayerNames names(unnamed_file);
  names.add("layers/0/tree", false);
  also_first(names);
  for (uint32_t number = 0; number < kMany; ++number) names.add(name(number), true);
  also_last(names);
  return names.finish();
}

const auto kNothing = [](LayerNames&) {};

auto link_to(const std::string& target) {
  return [target](LayerNames& names) {
    names.add("layers/0/tree/link", true);
    names.add_link(target);
  };
}

size_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace

TEST_CASE("names and links are checked across all runs", "[archive]") {
  CHECK(verdict_of(kNothing, kNothing) == Verdict::good);
  CHECK(verdict_of(kNothing, link_to(name(0))) == Verdict::good);
  CHECK(verdict_of(kNothing, link_to(name(kMany - 1))) == Verdict::good);
  CHECK(verdict_of(link_to(name(0)), kNothing) == Verdict::link_to_nothing);
  CHECK(verdict_of(kNothing, link_to("layers/0/tree/absent")) == Verdict::link_to_nothing);
  CHECK(verdict_of(kNothing, link_to("layers/0/tree")) == Verdict::link_to_nothing);
  const auto again = [](uint32_t number) {
    return [number](LayerNames& names) { names.add(name(number), true); };
  };
  CHECK(verdict_of(again(kMany - 1), kNothing) == Verdict::name_twice);
  CHECK(verdict_of(kNothing, again(0)) == Verdict::name_twice);
}

TEST_CASE("few names need no file", "[archive]") {
  LayerNames names([]() -> base::Fd { throw base::Error(base::Code::internal, "no file"); });
  for (uint32_t number = 0; number < 1000; ++number) names.add(name(number), true);
  names.add_link(name(5));
  CHECK(names.finish() == Verdict::good);
}

// At 16 bytes each they would take 64 MB, and 128 MB while a list of them grows.
TEST_CASE("four million names take some megabytes", "[archive]") {
  const size_t before = bytes_in_use();
  size_t most = 0;
  LayerNames names(unnamed_file);
  for (uint32_t number = 0; number < 4'000'000; ++number) {
    names.add(name(number), true);
    names.add_link(name(number / 2));
    if (number % 1000 == 0) most = std::max(most, bytes_in_use());
  }
  CHECK(most - before < 16 << 20);
  CHECK(names.finish() == Verdict::link_to_nothing);  // the first one links to itself
  CHECK(bytes_in_use() - before < 1 << 20);
}

}  // namespace moorage::packs
