#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include "results.h"

#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "base/os/files.h"
#include "engines.h"

namespace moorage::tests::results {
namespace {

namespace json = boost::json;

struct Run {  // of one test case against one backend
  std::string backend;
  std::string result;
  std::string reason;
};

Run current;
json::array promises;
json::array tables;

class Collector : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo&) override {
    for (const std::string& missing : missing_engines())
      std::cerr << "SKIPPED: " << missing << "\n";
  }

  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    TestEventListenerBase::testCaseStarting(test);
    counts_ = std::find(test.tags.begin(), test.tags.end(), "contract") != test.tags.end();
    name_ = test.name;
  }

  // The test case itself is a section, restarted for each value of its generators.
  void sectionStarting(const Catch::SectionInfo& section) override {
    TestEventListenerBase::sectionStarting(section);
    if (section.name == name_) current = {};
  }

  void sectionEnded(const Catch::SectionStats& stats) override {
    TestEventListenerBase::sectionEnded(stats);
    if (!counts_ || stats.sectionInfo.name != name_ || current.backend.empty()) return;
    if (stats.assertions.failed > 0) {
      current.result = "failed";
      current.reason.clear();
    } else if (current.result.empty()) {
      current.result = stats.assertions.passed > 0 ? "passed" : "silent";
    }
    const std::string file = stats.sectionInfo.lineInfo.file;
    promises.push_back({{"promise", name_},
                        {"file", file.substr(file.rfind('/') + 1)},
                        {"line", stats.sectionInfo.lineInfo.line},
                        {"backend", current.backend},
                        {"result", current.result},
                        {"reason", current.reason}});
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    TestEventListenerBase::testRunEnded(stats);
    const char* path = std::getenv("MOORAGE_TEST_RESULTS");
    if (!path) return;
    const json::object all{{"promises", promises}, {"probe", tables}};
    base::write_file(path, json::serialize(all) + "\n", 0644);
  }

 private:
  bool counts_ = false;
  std::string name_;
};

CATCH_REGISTER_LISTENER(Collector)

}  // namespace

void begin(const std::string& backend) { current.backend = backend; }

void not_applicable(const std::string& reason) {
  current.result = "not applicable";
  current.reason = reason;
}

void not_tried(const std::string& reason) {
  current.result = "not tried";
  current.reason = reason;
}

void add_differences(const std::string& backend, const std::string& user,
                     const std::vector<Difference>& differences) {
  json::array lines;
  for (const Difference& each : differences) {
    lines.push_back({{"listed", each.listed},
                     {"line", each.line},
                     {"lxc", each.on_lxc},
                     {"here", each.here},
                     {"reason", each.reason}});
  }
  tables.push_back({{"backend", backend}, {"user", user}, {"differences", lines}});
}

}  // namespace moorage::tests::results
