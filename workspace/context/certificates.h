// Certificates of authorities, shown read-only inside sandboxes, and the variables by which
// programs find them: the store's own authority, which signs for hosts whose TLS ends outside of
// the sandbox, and a company's (setting network.ca_file). Node and Deno read them besides their
// own; other programs read one file only, which therefore has the host's certificates, too. It also
// takes the place of the bundle that programs read without a variable (backends/trust.h).
#pragma once

#include <map>
#include <string>

namespace moorage::workspace {

// A file in the directory of a sandbox that shows them: later settings do not change that.
inline constexpr const char* kShowsCertificates = "shows-certificates";

inline std::string certificates_directory(const std::string& store) {
  return store + "/certificates";
}
// Fills that directory. `ca_file` may be empty. Throws invalid_argument if the file has no
// certificate in PEM.
void write_certificates(const std::string& store, const std::string& ca_file);
// All by which the hosts outside are verified, in PEM.
std::string authorities_outside(const std::string& ca_file);
// PEM: the certificate and the key of the store's own authority. Made at the first call.
std::string store_authority(const std::string& store);

// Of commands in sandboxes that show the directory.
std::map<std::string, std::string> certificate_variables();

}  // namespace moorage::workspace
