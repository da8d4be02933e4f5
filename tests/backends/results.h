// Results of the contract suite for docs/backends.md: for each test case with the tag [contract]
// and each backend it ran against, whether the promise is kept. A Catch2 listener collects them and
// writes JSON to the file in MOORAGE_TEST_RESULTS, if set; write_table.py turns it into the page. A
// test that returns without an assertion or a reason is reported as "silent".
#pragma once

#include <string>
#include <vector>

namespace moorage::tests::results {

// From now on, until this run of the test case ends, results count for this backend.
void begin(const std::string& backend);
// The backend does not promise this. The reason appears on the page, so give one inherent in the
// backend.
void not_applicable(const std::string& reason);
// Promised, but could not be tested on this host. Not shown on the page.
void not_tried(const std::string& reason);

// A line of the probe that differs from lxc.
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
