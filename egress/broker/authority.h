// The certificates of this egress: leaves for the hosts whose TLS ends here, signed by an
// intermediate authority of the sandbox, and the authorities by which real hosts are verified.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/net/certificates.h"

struct ssl_ctx_st;

namespace moorage::egress {

struct FreeTlsContext {
  void operator()(ssl_ctx_st* context) const;
};
using TlsContext = std::unique_ptr<ssl_ctx_st, FreeTlsContext>;

class Authority {
 public:
  // PEM: the intermediate's certificate and its key. Throws invalid_argument.
  explicit Authority(std::string_view pem) : issuer_(pem) {}

  // For a server that answers as this host. Made at the first call, then kept. Throws.
  ssl_ctx_st* server_context(const std::string& host);

 private:
  base::Issuer issuer_;
  std::map<std::string, TlsContext> contexts_;
};

// For clients, which trust the authorities in `pem` (other text is skipped). Throws
// invalid_argument if there is none.
TlsContext client_context(std::string_view pem);

}  // namespace moorage::egress
