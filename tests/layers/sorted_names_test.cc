#include "layers/sorted_names.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "base/os/files.h"
#include "layers/storage_fixture.h"
#include "sanitized.h"

using namespace moorage;
using namespace moorage::layers;

namespace {

constexpr int kNames = 15'000;
constexpr size_t kNameBytes = 200;

struct Directory {
  TemporaryDirectory directory;
  base::Fd fd = base::open_directory(directory.path());

  Directory() {
    for (int n = 0; n < kNames; ++n) {
      std::string name = std::to_string(n) + "-";
      name.resize(kNameBytes, 'x');
      REQUIRE(mknodat(fd.get(), name.c_str(), S_IFREG | 0644, 0) == 0);
    }
  }
};

uint64_t status_kb(const std::string& field) {
  std::istringstream status(base::read_file("/proc/self/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1));
  }
  FAIL("no " << field);
  return 0;
}

}  // namespace

TEST_CASE("names come sorted, each once, in pieces of any size") {
  const Directory directory;
  for (const uint64_t at_most : {300'000, 1'000'000, 100'000'000}) {
    SortedNames names;
    std::string last;
    int count = 0;
    while (const auto name = names.next(directory.fd.get(), at_most)) {
      if (*name <= last) FAIL(last << " before " << *name);
      last = *name;
      ++count;
    }
    CHECK(count == kNames);
  }
}

TEST_CASE("a piece of names stays within its memory limit, also while it is read") {
  const Directory directory;
  constexpr uint64_t kAtMost = 2'900'000;  // less than all names need
  malloc_trim(0);
  const base::Fd refs = base::open_file("/proc/self/clear_refs", O_WRONLY);
  base::write_all(refs.get(), "5");
  const uint64_t before_kb = status_kb("VmRSS");
  SortedNames names;
  REQUIRE(names.next(directory.fd.get(), kAtMost));
  const uint64_t grown = (status_kb("VmHWM") - before_kb) * 1024;
  CHECK((test::kSanitized || grown < kAtMost + (512 << 10)));
}
