// What the contract suite found, for docs/backends.md: for each test case with the tag [contract]
// and each backend that it ran against, whether the promise is kept. A listener of Catch2 collects,
// and writes JSON to the file in MOORAGE_TEST_RESULTS when that is set; write_table.py makes the
// page of it. A test that returns without an assertion and without a reason is told as "silent".
#pragma once

#include <string>
#include <vector>

namespace moorage::tests::results {

// From now on, to the end of this run of the test case, it is this backend that is tried.
void begin(const std::string& backend);
// The backend does not promise this. Part of the page, so the reason is one of the backend's
// nature.
void not_applicable(const std::string& reason);
// It promises this, but it could not be tried on this host. No part of the page.
void not_tried(const std::string& reason);

// A line of the probe that is another one than on lxc.
struct Difference {
  std::string listed;  // in isolation_differences.cc
  std::string line;
  std::string on_lxc;
  std::string here;
  std::string reason;
};
void add_differences(const std::string& backend, const std::string& user,
                     const std::vector<Difference>& differences);

}  // namespace moorage::tests::results
