#include "workspace/context/certificates.h"

#include <sys/stat.h>

#include <string_view>

#include "backends/trust.h"
#include "base/error.h"
#include "base/net/certificates.h"
#include "base/net/java_store.h"
#include "base/os/files.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;

constexpr int64_t kAuthorityDays = 3'650;

std::string certificates_of_host() {
  for (const char* path : backends::kBundles) {
    if (auto text = base::read_file_if_exists(path)) return *text;
  }
  return {};
}

std::string own_certificates(const std::string& ca_file) {
  if (ca_file.empty()) return {};
  std::string own = base::read_file(ca_file);
  if (own.find("-----BEGIN CERTIFICATE-----") == std::string::npos) {
    throw Error(Code::invalid_argument, "network.ca_file: " + ca_file + " has no certificate",
                "Give a file with certificates in PEM: -----BEGIN CERTIFICATE-----.");
  }
  return own;
}

// Otherwise its time stays: a copy on another machine is compared by it.
void write_if_changed(const std::string& path, const std::string& bytes) {
  constexpr mode_t kReadable = 0644;
  if (base::read_file_if_exists(path) != bytes) base::write_file(path, bytes, kReadable);
}

}  // namespace

std::string store_authority(const std::string& store) {
  const std::string path = store + "/authority.pem";
  if (auto kept = base::read_file_if_exists(path)) return *kept;
  const auto made = base::Issuer::self_signed(
      {.name = "Moorage, this store", .authority = true, .path_length = 1, .days = kAuthorityDays});
  base::write_file_durable(path, made.certificate + made.key);
  return made.certificate + made.key;
}

std::string authorities_outside(const std::string& ca_file) {
  return certificates_of_host() + "\n" + own_certificates(ca_file);
}

void write_certificates(const std::string& store, const std::string& ca_file) {
  const std::string directory = certificates_directory(store);
  const std::string own =
      base::Issuer(store_authority(store)).certificate() + own_certificates(ca_file);
  base::make_directories(directory);
  base::check(chmod(directory.c_str(), 0755), "set the mode of " + directory);
  const std::string all = certificates_of_host() + "\n" + own;
  write_if_changed(directory + "/" + backends::kOwnCertificates, own);
  write_if_changed(directory + "/" + backends::kAllCertificates, all);
  write_if_changed(directory + "/" + backends::kJavaCertificates, base::java_store(all));
}

std::map<std::string, std::string> certificate_variables() {
  const std::string place(backends::kCertificatesInside);
  std::map<std::string, std::string> variables;
  for (const char* name : {"NODE_EXTRA_CA_CERTS", "DENO_CERT"})
    variables[name] = place + "/" + backends::kOwnCertificates;
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
                           "REQUESTS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "HEX_CACERTS_PATH"})
    variables[name] = place + "/" + backends::kAllCertificates;
  return variables;
}

}  // namespace moorage::workspace
