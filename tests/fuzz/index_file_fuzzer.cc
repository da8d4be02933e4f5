// Reads back the index of a base tree with arbitrary contents and a valid checksum.
#include <openssl/sha.h>

#include "fuzz.h"
#include "repo_cache/formats/index_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  unsigned char sum[SHA_DIGEST_LENGTH];
  SHA1(data, size, sum);
  bytes.append(reinterpret_cast<const char*>(sum), sizeof sum);
  fuzz::refused([&] {
    for (const auto& file : repo_cache::read_index(bytes)) {
      fuzz::require(file.path.data() >= bytes.data() &&
                        file.path.data() + file.path.size() <= bytes.data() + bytes.size(),
                    "a path lies in the file");
    }
  });
  return 0;
}
