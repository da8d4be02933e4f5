#include "workspace/exec/evidence.h"

#include <catch2/catch.hpp>

using namespace moorage::workspace;

TEST_CASE("packets without a route are counted for both protocols") {
  const std::string snmp =
      "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 1 2 30 4\n"
      "Icmp: InMsgs OutNoRoutes\nIcmp: 5 600\n";
  CHECK(packets_without_route(snmp, "Ip6InReceives  \t1\nIp6OutNoRoutes  \t7\n") == 37);
  CHECK(packets_without_route("", "") == 0);
  CHECK(packets_without_route("Ip: OutNoRoutes\n", "Ip6OutNoRoutes") == 0);
}
