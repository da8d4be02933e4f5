// A store of authorities in the form that Java reads (JKS, version 2: sun.security.provider.
// JavaKeyStore). Java accepts it wherever it looks for "cacerts", with or without the usual
// password, "changeit".
#pragma once

#include <string>
#include <string_view>

namespace moorage::base {

// `pem`: certificates. The same ones make the same bytes.
std::string java_store(std::string_view pem);

}  // namespace moorage::base
