#include "base/os/namespaces.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace moorage;

TEST_CASE("work for a sandbox's network never runs in the host's") {
  bool ran = false;
  CHECK_THROWS_AS(base::in_network_namespace(base::identify_process(getpid()), [&] { ran = true; }),
                  base::Error);
  CHECK_FALSE(ran);
}
