// Certificates of a company's own authorities (setting network.ca_file), shown read-only inside
// sandboxes, and the variables by which programs find them. Node reads them besides its own; other
// programs read one file only, which therefore has the host's certificates, too.
#pragma once

#include <map>
#include <string>

namespace moorage::workspace {

inline constexpr const char* kCertificatesPlace = "/.moorage/certificates";  // inside
// A file in the directory of a sandbox that shows them: later settings do not change that.
inline constexpr const char* kShowsCertificates = "shows-certificates";

inline std::string certificates_directory(const std::string& store) {
  return store + "/certificates";
}
// Fills that directory. Throws invalid_argument if the file has no certificate in PEM.
void write_certificates(const std::string& directory, const std::string& ca_file);

// Of commands in sandboxes that show the directory.
std::map<std::string, std::string> certificate_variables();

}  // namespace moorage::workspace
