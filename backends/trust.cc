#include "backends/trust.h"

#include "base/digest.h"
#include "base/os/files.h"

namespace moorage::backends {

std::string certificates_key(const std::string& directory) {
  std::string files;
  for (const char* name : {kOwnCertificates, kAllCertificates, kJavaCertificates})
    files += base::sha256_hex(base::read_file(directory + "/" + name));
  return "certificates-" + base::sha256_hex(files);
}

}  // namespace moorage::backends
