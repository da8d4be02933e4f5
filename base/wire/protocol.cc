#include "base/wire/protocol.h"

namespace moorage::base {

const Protocols kProtocols{1, 1};
const char* const kRelease = MOORAGE_VERSION;

}  // namespace moorage::base
