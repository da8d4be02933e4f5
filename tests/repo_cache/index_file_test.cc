#include "repo_cache/formats/index_file.h"

#include <openssl/sha.h>

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace moorage;
using namespace moorage::repo_cache;

namespace {

constexpr size_t kCountAt = 8;

std::string with_sum(std::string bytes) {
  std::string sum(SHA_DIGEST_LENGTH, '\0');
  SHA1(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       reinterpret_cast<unsigned char*>(sum.data()));
  return bytes + sum;
}

}  // namespace

TEST_CASE("an index that claims more files than bytes is damaged, and takes no memory") {
  TreeListing listing;
  listing.directories.push_back({"", {}, 1, {}});
  listing.files.push_back({"a", 0, 0100644, {}});
  std::string bytes = make_index(listing, {FileStat{1, 5}});
  REQUIRE(read_index(bytes).size() == 1);
  bytes.resize(bytes.size() - SHA_DIGEST_LENGTH);
  bytes.replace(kCountAt, 4, "\xff\xff\xff\xff");
  try {
    read_index(with_sum(bytes));
    FAIL("accepted");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::corrupted);
  }
}
