#include "base/os/sparse_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "base/os/files.h"

using namespace moorage;

TEST_CASE("zeros become holes, and the file has every byte") {
  const std::string hole(1 << 20, '\0');
  for (const std::string& content :
       {std::string(), std::string("x"), std::string(1, '\0'), hole, hole + "end", "begin" + hole,
        "a" + hole + "b" + hole + "c", std::string(5000, 'x') + hole}) {
    for (const size_t piece : {size_t{1000}, size_t{4096}, size_t{65'537}}) {
      base::Fd file(::open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
      base::SparseFile sparse(file.get());
      for (size_t at = 0; at < content.size(); at += piece)
        sparse.write(std::string_view(content).substr(at, piece));
      sparse.finish();
      CHECK(base::read_at(file.get(), content.size() + 1, 0) == content);
      struct stat status {};
      REQUIRE(::fstat(file.get(), &status) == 0);
      CHECK(status.st_blocks * 512 <= 5 * 4096);
    }
  }
}
