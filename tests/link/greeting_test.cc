// What a machine says of itself.
#include "link/recovery/greeting.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>

using namespace moorage;

namespace {

boost::json::object parsed(const char* text) { return boost::json::parse(text).as_object(); }

}  // namespace

TEST_CASE("facts of another form than ours count as absent") {
  base::LinkStatus status;
  link::read_facts(parsed(R"({"overlay":"none","pid_namespace":false,"net_namespace":true,)"
                          R"("root_inside":true,"limits":["memory",3,"pids"]})"),
                   status);
  CHECK(status.overlay == "none");
  CHECK_FALSE(status.pid_namespace);
  CHECK(status.net_namespace);
  CHECK(status.root_inside);
  CHECK(status.limits == std::vector<std::string>{"memory", "pids"});
  link::read_facts(parsed(R"({"overlay":7,"pid_namespace":"yes","limits":{}})"), status);
  CHECK(status.overlay == "none");
  CHECK_FALSE(status.pid_namespace);
  CHECK(status.limits.empty());
  const std::string huge(1 << 20, 'x');
  link::read_facts({{"overlay", huge}, {"limits", {huge, huge}}}, status);
  CHECK(status.overlay.size() == 16);
  CHECK(status.limits == std::vector<std::string>(2, std::string(16, 'x')));
}

TEST_CASE("lost paths are below the mounts, and bounded") {
  CHECK(link::read_lost(parsed("{}")).empty());
  CHECK(link::read_lost(parsed(R"({"lost":["tree/a","home","home/b/c","treetop","etc",5,""]})")) ==
        std::vector<std::string>{"/workspace/a", "/home/user", "/home/user/b/c"});
  CHECK(link::read_lost(parsed(R"({"lost":["tree/../etc","tree/..","home/./a","tree//a","tree/",)"
                               R"("tree/a\u0000b"]})"))
            .empty());
  boost::json::array many(100'000, boost::json::value("tree/x"));
  CHECK(link::read_lost({{"lost", many}}).size() == 10'000);
}
