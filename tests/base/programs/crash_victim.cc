// Lists its crash points, or passes "test.first" twice and "test.second" once and prints its
// progress.
#include <cstdio>
#include <cstring>

#include "base/crash_point.h"

MOORAGE_CRASH_POINT(first, "test.first");
MOORAGE_CRASH_POINT(second, "test.second");

static void tell(const char* text) {
  puts(text);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "list") == 0) {
    for (std::string_view name : moorage::base::crash_point_names()) {
      printf("%.*s\n", static_cast<int>(name.size()), name.data());
    }
    return 0;
  }
  tell("begin");
  first.pass();
  tell("first");
  first.pass();
  tell("again");
  second.pass();
  tell("end");
}
