// Of base/wire/trust.h, for sandboxes of this machine; and what identifies the certificates that
// are sent to another one.
#pragma once

#include <string>

#include "base/wire/trust.h"

namespace moorage::backends {

using base::kAllCertificates;
using base::kBundles;
using base::kCertificatesInside;
using base::kJavaCertificates;
using base::kJavaStores;
using base::kOwnCertificates;

// The same for directories of the same files: a key of base::LinkTree.
std::string certificates_key(const std::string& directory);

}  // namespace moorage::backends
