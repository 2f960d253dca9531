TYPE ld_TYPE(int64_t base, int64_t index) {
    TYPE value;
    memcpy(&value, (const char *)(intptr_t)(base + SIZE * index), SIZE);
    return value;
}

bool ld_bool(int64_t base, int64_t index) {
    return *((const unsigned char *)(intptr_t)base + index) != 0;
}

void st_TYPE(int64_t base, int64_t index, TYPE value) {
    memcpy((char *)(intptr_t)(base + SIZE * index), &value, SIZE);
}

void st_bool(int64_t base, int64_t index, bool value) {
    *((unsigned char *)(intptr_t)base + index) = value;
}

void vst_TYPE(int64_t base, int64_t index, TYPE value, int64_t some) {
    if (some > 0) memcpy((char *)(intptr_t)(base + SIZE * index), &value, SIZE);
}

int64_t ld_pointer(int64_t base) {
    const char *value;
    memcpy(&value, (const char *)(intptr_t)base, sizeof value);
    return (int64_t)(intptr_t)value;
}

TYPE min_TYPE(TYPE a, TYPE b) {
    return b < a ? b : a;
}

TYPE max_TYPE(TYPE a, TYPE b) {
    return b > a ? b : a;
}

TYPE power_TYPE(TYPE base, int64_t exponent) {
    TYPE made = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) made = made * base;
        if (exponent > 1) base = base * base;
    }
    return made;
}

int64_t abs_int64(int64_t a) {
    return a < 0 ? -a : a;
}

int64_t wrap_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

int64_t wrap_mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

int64_t floor_div(int64_t a, int64_t b) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return 0;
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

int64_t floor_mod(int64_t a, int64_t b) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return 0;
    return a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b;
}

uint64_t ufloor_div(uint64_t a, uint64_t b) {
    return b == 0 ? 0 : a / b;
}

uint64_t ufloor_mod(uint64_t a, uint64_t b) {
    return b == 0 ? 0 : a % b;
}

int64_t bits_float64(double value) {
    int64_t made;
    memcpy(&made, &value, 8);
    return made;
}

int64_t bits_float32(float value) {
    int32_t made;
    memcpy(&made, &value, 4);
    return made;
}

double of_bits_float64(int64_t number) {
    double made;
    memcpy(&made, &number, 8);
    return made;
}

float of_bits_float32(int64_t number) {
    uint32_t low = (uint32_t)(uint64_t)number;
    float made;
    memcpy(&made, &low, 4);
    return made;
}
